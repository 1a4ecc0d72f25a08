"""Converts a BrokerError to the trailers of a gRPC call.  Only this module knows the numbers of gRPC's status
codes.
"""

from base64 import b64encode
from urllib.parse import quote

from google.protobuf import json_format

from broker.api.error_details import error_details
from broker.api.gate import CHALLENGE
from broker.api.generated import messages
from broker.model.errors import BrokerError

GRPC_STATUS = {
    "OK": 0,
    "CANCELLED": 1,
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "OUT_OF_RANGE": 11,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "UNAUTHENTICATED": 16,
}

_PLAIN = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"  # all printable ASCII but the percent sign
_DETAIL_TYPES = {
    "google.rpc.ErrorInfo": messages.ErrorInfo,
    "google.rpc.QuotaFailure": messages.QuotaFailure,
    "google.rpc.RetryInfo": messages.RetryInfo,
}
MAX_MESSAGE = 4_096  # characters; a refused value may be as long as a request, and clients limit trailers


def error_trailers(error: BrokerError) -> list[tuple[bytes, bytes]]:
    """grpc-status, grpc-message, and with details the google.rpc.Status that clients read them from.

    An error that is worth another try says when, in one of the details.
    """
    code = GRPC_STATUS[error.code]
    message = error.message if len(error.message) <= MAX_MESSAGE else error.message[:MAX_MESSAGE] + "…"
    trailers = [(b"grpc-status", b"%d" % code), (b"grpc-message", quote(message, safe=_PLAIN).encode())]
    if error.code == "UNAUTHENTICATED":
        trailers.append((b"www-authenticate", CHALLENGE))
    details = error_details(error)
    if details:
        status = messages.Status(code=code, message=message)
        for detail in details:
            fields = {key: value for key, value in detail.items() if key != "@type"}
            kind = _DETAIL_TYPES[detail["@type"].rpartition("/")[2]]
            packed = status.details.add()
            packed.type_url = detail["@type"]
            packed.value = json_format.ParseDict(fields, kind()).SerializeToString()
        trailers.append((b"grpc-status-details-bin", b64encode(status.SerializeToString()).rstrip(b"=")))
    return trailers
