"""All errors that the broker returns to callers.

BrokerError
├── InvalidArgument      a value the caller sent is wrong; sending it again will not help
├── FailedPrecondition   the value is fine, the state of the resource is not
├── OutOfRange           a value past the end of what exists
├── NotFound             the named resource does not exist
├── AlreadyExists        the named resource exists
├── Unauthenticated      no credential, or one that proves nothing
├── PermissionDenied     the caller lacks a permission; this does not show whether the resource exists
├── Aborted              lost against a concurrent change; the caller may repeat the whole call
│   ├── Held             a topic accepts nothing at present; messages that were accepted before wait
│   └── NotAsExpected    the effect of the call would differ from what its caller expects
├── ResourceExhausted    too many publishes wait in this process; nothing was stored, try later
│   ├── QuotaExceeded    a project or a principal has reached its quota
│   └── StorageLow       a storage limit of the installation pauses publishing
├── Unavailable          try again; a publish with this error may or may not have been stored
├── DeadlineExceeded     the work took longer than the caller allowed
├── Unimplemented        there is no such method, or no such encoding of a call
└── Internal             an error in the broker

The class is the canonical code (google.rpc.Code); each API maps it once (api/rest/errors.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class BrokerError(Exception):
    """A failed call.  `details` are google.rpc detail messages in their JSON form (with "@type")."""

    code: ClassVar[str] = "INTERNAL"
    retry_seconds: float | None = None  # about when the same call may work; the APIs say so
    retry_spread: ClassVar[tuple[float, float]] = (0.5, 1.5)  # times that, by chance

    def __init__(self, message: str, *, details: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.log_message = message  # in the log, which counts those that say the same
        self.details = details


class InvalidArgument(BrokerError):
    code = "INVALID_ARGUMENT"


class FailedPrecondition(BrokerError):
    code = "FAILED_PRECONDITION"


class OutOfRange(BrokerError):
    code = "OUT_OF_RANGE"


class NotFound(BrokerError):
    code = "NOT_FOUND"


class AlreadyExists(BrokerError):
    code = "ALREADY_EXISTS"


class Unauthenticated(BrokerError):
    code = "UNAUTHENTICATED"


class PermissionDenied(BrokerError):
    code = "PERMISSION_DENIED"


class Aborted(BrokerError):
    code = "ABORTED"


class Held(Aborted):
    """The messages wait: publishing on the topic is tried again later."""


class NotAsExpected(Aborted):
    """A call whose effect would differ from what its caller expects.  It has changed nothing, and the same call
    would be refused again: the caller must look at the present state first.
    """


class ResourceExhausted(BrokerError):
    """The broker's own bounds say this of publishes alone: Google's clients send a publish again after it, other
    calls only after UNAVAILABLE.  Quotas say it of every call, as Google's do.
    """

    code = "RESOURCE_EXHAUSTED"
    retry_seconds: float | None = 1.0


class QuotaExceeded(ResourceExhausted):
    """A quota of a project or a principal is used up; the call has changed nothing."""

    retry_spread = (1.0, 1.5)  # earlier it would be refused again

    def __init__(
        self,
        message: str,
        *,
        log_message: str = "",
        retry_seconds: float | None = 1.0,
        details: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`reported`: without numbers.  `retry_seconds`: None where time alone does not help."""
        super().__init__(message, details=details)
        self.log_message = log_message or message
        self.retry_seconds = retry_seconds


class StorageLow(ResourceExhausted):
    """The disk or the database has no room for more messages; the call has changed nothing."""

    retry_seconds: float | None = 5.0

    def __init__(self, message: str, *, log_message: str = "", details: Sequence[Mapping[str, Any]] = ()) -> None:
        """`log_message`: without sizes, which change with each call."""
        super().__init__(message, details=details)
        self.log_message = log_message or message


class Unavailable(BrokerError):
    code = "UNAVAILABLE"
    retry_seconds = 1.0


class DeadlineExceeded(BrokerError):
    code = "DEADLINE_EXCEEDED"


class Unimplemented(BrokerError):
    code = "UNIMPLEMENTED"


class Internal(BrokerError):
    code = "INTERNAL"


def os_reason(error: OSError) -> str:
    """Why the operating system refused, without the path, which is the caller's to name."""
    return error.strerror or str(error)
