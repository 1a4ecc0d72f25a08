"""Registers copying, exporting and importing the messages of topics."""

from functools import partial

from broker.core.context.core import Core
from broker.core.process.tails import Tails
from broker.core.publishing.preparation import Preparation
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import ResourceTurns
from broker.features.feature import Feature
from broker.features.import_export.copy_operation import CopyKind
from broker.features.import_export.copy_service import CopyService
from broker.features.import_export.export_service import ExportService
from broker.features.import_export.import_rows import delete_old_parts
from broker.features.import_export.import_service import ImportService
from broker.features.import_export.rpcs import make_rpcs
from broker.features.operations.operations import Operations
from broker.model.operation_verb import Verb


def register(
    core: Core,
    *,
    preparation: Preparation,
    operations: Operations,
    replica_reads: ReplicaReads,
    turns: ResourceTurns,
    tails: Tails,
    kept_days: int,
) -> Feature:
    """`replica_reads` and `turns`: of calls that read much.  `kept_days`: how long a part of an import is
    remembered.
    """
    operations.add_kind(Verb.COPY, CopyKind(core, operations.targets))
    return Feature(
        rpcs=make_rpcs(
            copies=CopyService(core.database, core.clock, operations.service),
            exports=ExportService(core.database, replica_reads, core.clock, turns, tails),
            imports=ImportService(core, preparation),
        ),
        clean_ups=[partial(delete_old_parts, days=kept_days)],
    )
