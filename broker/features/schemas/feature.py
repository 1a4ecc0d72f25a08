"""Registers schemas: their calls, the check of messages, and the checks when a topic's schema changes."""

from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.schemas.decode_service import DecodeService
from broker.features.schemas.publish_rule import schema_rule
from broker.features.schemas.rpcs import make_rpcs
from broker.features.schemas.schema_checks import SchemaChecks
from broker.features.schemas.service import SchemaService
from broker.features.schemas.topic_field import TOPIC_FIELD


def register(core: Core) -> Feature:
    checks = SchemaChecks(core.resources, core.counters)
    service = SchemaService(core, checks)
    return Feature(
        rpcs=make_rpcs(service, DecodeService(core.database, checks), core.views),
        publish_rules=[schema_rule(checks)],
        topic_fields=[TOPIC_FIELD],
        policy_resources={"schemas": service.get_schema},
        close=checks.close,
    )
