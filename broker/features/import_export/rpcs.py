"""Rows of the table of calls for copying, exporting and importing the messages of topics."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import ATTACH, PUBLISH
from broker.api.rest.routes import Rest
from broker.api.row import TOPIC, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.import_export import copy_rest, rest
from broker.features.import_export.copy_service import CopyService
from broker.features.import_export.export_service import ExportService
from broker.features.import_export.import_service import ImportService
from broker.model.operation_verb import Verb


def make_rpcs(*, copies: CopyService, exports: ExportService, imports: ImportService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="CopyTopic", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=Verb.COPY,
            needs=ATTACH,  # shows message bodies, as a subscription does; and PUBLISH on the target
            rest=[Rest("POST", f"{TOPIC}:copy", "CopyTopic", partial(copy_rest.copy_topic, copies), ())],
            grpc=[],
        ),
        Row(
            name="ExportTopic", kind=Kind.WAITING, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=ATTACH,  # shows message bodies, as a subscription does
            rest=[Rest("POST", f"{TOPIC}:export", "ExportTopic", partial(rest.export_topic, exports), ())],
            grpc=[],
        ),
        Row(
            name="ImportTopic", kind=Kind.CHANGE, size=Size.IMPORT, audit=Audit.MESSAGES, starts=None,
            needs=PUBLISH,
            rest=[
                Rest(
                    "POST", f"{TOPIC}:import", "ImportTopic",
                    partial(rest.import_topic, imports), ("importId", "part", "expiry"),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
