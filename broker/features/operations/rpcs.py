"""The rows of the table of calls for long-running operations."""

from collections.abc import Sequence

from broker.api.permissions import LIST_SUBSCRIPTIONS, NOTHING
from broker.api.rest.routes import Rest
from broker.api.row import OPERATION, PAGE, PROJECT, Row
from broker.api.rpc import Audit, Kind, Size
from broker.features.operations.rest import OperationCalls
from broker.model.preview import SAFEGUARDS


def make_rpcs(calls: OperationCalls) -> Sequence[Row]:
    # fmt: off
    return [
        Row(
            name="Operations.ListOperations", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LIST_SUBSCRIPTIONS,
            rest=[
                Rest(
                    "GET", f"{PROJECT}/operations", "ListOperations",
                    calls.list_operations, (*PAGE, "orderBy", "filter"),
                ),
            ],
            grpc=[],
        ),
        Row(
            name="Operations.GetOperation", kind=Kind.QUERY, size=Size.SMALL, audit=Audit.USE, starts=None,
            needs=NOTHING,  # the handler asks: the caller may list operations, or start this one
            rest=[Rest("GET", OPERATION, "GetOperation", calls.get_operation, ())],
            grpc=[],
        ),
        Row(
            name="Operations.WaitOperation", kind=Kind.WAITING, size=Size.SMALL, audit=Audit.USE, starts=None,
            needs=NOTHING,  # as GetOperation
            rest=[Rest("POST", f"{OPERATION}:wait", "WaitOperation", calls.wait_operation, ())],
            grpc=[],
        ),
        Row(
            name="Operations.CancelOperation", kind=Kind.CHANGE, size=Size.SMALL, audit=Audit.CHANGE, starts=None,
            needs=NOTHING,  # the handler asks: the caller may start this operation
            rest=[Rest("POST", f"{OPERATION}:cancel", "CancelOperation", calls.cancel_operation, ())],
            grpc=[],
        ),
        Row(
            name="Operations.DeleteOperation", kind=Kind.CHANGE, size=Size.SMALL, audit=Audit.CHANGE, starts=None,
            needs=NOTHING,  # as CancelOperation
            rest=[Rest("DELETE", OPERATION, "DeleteOperation", calls.delete_operation, SAFEGUARDS)],
            grpc=[],
        ),
    ]
    # fmt: on
