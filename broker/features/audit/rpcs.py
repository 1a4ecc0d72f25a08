"""The row of the table of calls for the audit log."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import Need, Needs
from broker.api.rest.routes import Rest
from broker.api.row import PAGE, PROJECT, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.audit import rest
from broker.features.audit.service import AuditLogService


def make_rpcs(service: AuditLogService) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="Logging.ListAuditLogs", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("logging.privateLogEntries.list")),
            rest=[
                Rest(
                    "GET", f"{PROJECT}/auditLogs", "ListAuditLogs",
                    partial(rest.list_audit_logs, service), (*PAGE, "filter"),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
