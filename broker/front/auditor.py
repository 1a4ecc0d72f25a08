"""Which calls are in the audit log, of whichever door: changes and denials always, the rest by choice (E5).

https://cloud.google.com/logging/docs/audit#types: admin activity, and data access.
"""

from broker.access.audit.trail import AuditTrail
from broker.domain.audit_entry import Audited, method_name
from broker.domain.caller import Caller
from broker.domain.errors import BrokerError
from broker.front.peer import host_of
from broker.front.resource_calls import HOT

_DENIALS = ("UNAUTHENTICATED", "PERMISSION_DENIED")
_LOOKS = (
    "Export",
    "Find",
    "Get",
    "List",
    "Preview",
    "Tail",
    "Test",
    "Query",
    "Check",
    "Wait",
    "Watch",
    "Validate",
    "ServerReflection",
)
_LONGEST = 1_000  # characters of a resource's name: what is denied may have any


def is_use(rpc: str) -> bool:
    """Whether a method only uses or looks at what there is; every other one changes something."""
    return rpc in HOT or rpc == "Subscriber.StreamingPull" or rpc.rpartition(".")[2].startswith(_LOOKS)


class Auditor:
    """One for a process."""

    def __init__(self, trail: AuditTrail, *, data_access: bool) -> None:
        """`data_access`: calls that only use or look at something are entered, too."""
        self._trail = trail
        self._data_access = data_access

    def enters(self, rpc: str) -> bool:
        """Whether calls that went well are entered: of others `called` need not be told."""
        return self._data_access or not is_use(rpc)

    async def called(
        self, rpc: str, resource: str, caller: Caller, peer: object, error: BrokerError | None = None
    ) -> None:
        """A call is about to be answered: with `error`, or as it should be.

        Who has changed something is answered once that is written (trail.py); nobody else waits.
        """
        code = "OK" if error is None else error.code
        if not self.enters(rpc) and code not in _DENIALS:
            return
        what = Audited(
            method=method_name(rpc),
            resource=resource[:_LONGEST],
            code=code,
            principal=caller.member,
            credential=caller.credential,
            address=host_of(peer),
            permission=_missing(error),
        )
        if error is not None or is_use(rpc):
            self._trail.note(what)
        else:
            await self._trail.record(what)


def _missing(error: BrokerError | None) -> str:
    """The permission that somebody would have needed."""
    for detail in error.details if error is not None else ():
        if "permission" in detail.get("metadata", {}):
            return str(detail["metadata"]["permission"])
    return ""
