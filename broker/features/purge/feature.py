"""Registers purging: the calls, and the operation that purges a subscription by a filter."""

from broker.core.backlog.seeking.seek_service import SeekService
from broker.core.context.core import Core
from broker.features.feature import Feature
from broker.features.operations.operations import Operations
from broker.features.purge.operation import PurgeKind
from broker.features.purge.rpcs import make_rpcs
from broker.features.purge.service import PurgeService
from broker.model.operation_verb import Verb


def register(core: Core, *, operations: Operations, seeks: SeekService) -> Feature:
    operations.add_kind(Verb.PURGE, PurgeKind(core))
    return Feature(rpcs=make_rpcs(PurgeService(core, operations.service), seeks))
