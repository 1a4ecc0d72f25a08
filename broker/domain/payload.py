"""How large a request may be, whatever it says."""

from broker.domain.errors import InvalidArgument

MAX_PAYLOAD_BYTES = 10_485_760  # decompressed; Google's limit of a request's JSON or protobuf


def payload_too_large() -> InvalidArgument:
    return InvalidArgument(f"Request payload size exceeds the limit: {MAX_PAYLOAD_BYTES} bytes.")
