"""The status lines of responses, and the response to a request that is refused before it reaches an API."""

import json
from http import HTTPStatus

STATUS_LINES = {status.value: b"HTTP/1.1 %d %s" % (status, status.phrase.encode()) for status in HTTPStatus}
FAULT = "The broker met an unexpected fault; its log has the details."
CONTINUE = STATUS_LINES[100] + b"\r\n\r\n"

_CODES = {
    403: "PERMISSION_DENIED",
    408: "DEADLINE_EXCEEDED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    505: "UNIMPLEMENTED",
}
_JSON = b"content-type: application/json; charset=UTF-8\r\n"


def error_answer(status: int, reason: str) -> tuple[int, bytes, bytes]:
    """Status, header lines and body of an error, in the form of Google's; INVALID_ARGUMENT unless it has a code."""
    error = {"code": status, "message": reason, "status": _CODES.get(status, "INVALID_ARGUMENT")}
    return status, _JSON, json.dumps({"error": error}).encode()


def closing_answer(status: int, reason: str, request_id: bytes = b"") -> bytes:
    """An error as the last that is sent on a connection; `request_id`: of the request, if there is one."""
    status, headers, body = error_answer(status, reason)
    if request_id:
        headers += b"x-request-id: %b\r\n" % request_id
    return b"%b\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
        STATUS_LINES[status], headers, len(body), body,
    )  # fmt: skip
