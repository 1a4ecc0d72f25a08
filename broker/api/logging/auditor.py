"""Decides which calls are recorded, over either API (E5).

Changes are written to the log and to the audit log.  Denials are written to the audit log, and other calls if they
are configured.  https://cloud.google.com/logging/docs/audit#types: admin activity, and data access.
"""

from collections.abc import Sequence

from broker.access.audit.audit_entry import Audited, method_name
from broker.access.audit.trail import AuditTrail
from broker.access.principals.caller import Caller
from broker.api.logging.changes import log_change
from broker.api.peer import host_of
from broker.api.rpc import Rpc
from broker.model.errors import BrokerError, PermissionDenied

_DENIALS = ("UNAUTHENTICATED", "PERMISSION_DENIED")
_LONGEST = 1_000  # characters of a resource's name: a denied call may have any name


class Auditor:
    """The auditor of a process."""

    def __init__(self, trail: AuditTrail | None, *, data_access: bool) -> None:
        """`trail`: the audit log (None: there is none); `data_access`: it has calls that only use something."""
        self._trail = trail
        self._data_access = data_access and trail is not None

    def enters(self, rpc: Rpc) -> bool:
        """Whether calls that succeed are recorded.  If not, `called` need not be called for them."""
        return self._data_access or rpc.audit.is_change

    async def changed(
        self,
        rpc: Rpc,
        resource: str,
        caller: Caller,
        peer: object,
        *,
        fields: Sequence[str] = (),
        request_id: bytes = b"",
    ) -> None:
        """Records a change before its call is answered: in the log, and in the audit log, if there is one."""
        log_change(rpc, resource, caller, peer, fields=fields, request_id=request_id)
        if self._trail is not None:
            await self._trail.record(_audited(rpc, resource, caller, peer))

    def looked(self, rpc: Rpc, resource: str, caller: Caller, peer: object) -> None:
        """Records the preview of a change before it is answered: an access to data, and no change."""
        if self._trail is not None and self._data_access:
            self._trail.note(_audited(rpc, resource, caller, peer))

    def called(
        self, rpc: Rpc, resource: str, caller: Caller, peer: object, error: BrokerError | None = None
    ) -> None:
        """Records a call that has changed nothing before it is answered, with `error` or without.

        A denial that the caller sees as NOT_FOUND is its cause, and is audited as a denial.
        """
        if error is not None and isinstance(error.__cause__, PermissionDenied):
            error = error.__cause__
        code = "OK" if error is None else error.code
        if self._trail is not None and (self.enters(rpc) or code in _DENIALS):
            self._trail.note(_audited(rpc, resource, caller, peer, error))


def _audited(rpc: Rpc, resource: str, caller: Caller, peer: object, error: BrokerError | None = None) -> Audited:
    return Audited(
        method=method_name(rpc.name),
        resource=resource[:_LONGEST],
        code="OK" if error is None else error.code,
        principal=caller.member,
        credential=caller.credential,
        address=host_of(peer),
        permission=_missing(error),
    )


def _missing(error: BrokerError | None) -> str:
    """Returns the permission that a denied caller would have needed."""
    for detail in error.details if error is not None else ():
        if "permission" in detail.get("metadata", {}):
            return str(detail["metadata"]["permission"])
    return ""
