"""Registers the calls about schemas."""

from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.schemas.rpcs import make_rpcs
from broker.features.schemas.schema_checks import SchemaChecks
from broker.features.schemas.service import SchemaService


def register(core: Core, checks: SchemaChecks) -> Feature:
    return Feature(rpcs=make_rpcs(SchemaService(core, checks)))
