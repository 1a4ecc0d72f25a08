"""BrokerError to google.rpc.Status in JSON.  The only place that knows HTTP status codes of errors."""

import msgspec

from broker.domain.errors import BrokerError

HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def encode_error(error: BrokerError) -> tuple[int, bytes]:
    """The HTTP status and the body for an error."""
    status = HTTP_STATUS[error.code]
    body: dict[str, object] = {"code": status, "message": error.message, "status": error.code}
    if error.details:
        body["details"] = list(error.details)
    return status, msgspec.json.format(msgspec.json.encode({"error": body}), indent=2) + b"\n"
