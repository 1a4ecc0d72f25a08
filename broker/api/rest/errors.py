"""Converts a BrokerError to google.rpc.Status in JSON.  Only this module knows the HTTP status codes of errors."""

import math
from typing import NamedTuple

import msgspec

from broker.api.error_details import error_details
from broker.model.errors import BrokerError

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


class ErrorAnswer(NamedTuple):
    """`retry_after`: seconds for the header of that name; None where sending the call again will not help."""

    status: int
    body: bytes
    retry_after: int | None


def encode_error(error: BrokerError) -> ErrorAnswer:
    """The answer for an error; one that is worth another try says when (error_details)."""
    status = HTTP_STATUS[error.code]
    body: dict[str, object] = {"code": status, "message": error.message, "status": error.code}
    details = error_details(error)
    retry_after = None
    if error.retry_seconds is not None:
        retry_after = math.ceil(float(details[-1]["retryDelay"].removesuffix("s")))
    if details:
        body["details"] = details
    return ErrorAnswer(
        status, msgspec.json.format(msgspec.json.encode({"error": body}), indent=2) + b"\n", retry_after
    )
