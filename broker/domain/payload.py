"""How large a request may be, whatever it says."""

import zlib

from broker.domain.errors import BrokerError, InvalidArgument

MAX_PAYLOAD_BYTES = 10_485_760  # decompressed; Google's limit of a request's JSON or protobuf


def payload_too_large() -> InvalidArgument:
    return InvalidArgument(f"Request payload size exceeds the limit: {MAX_PAYLOAD_BYTES} bytes.")


def decompressed(payload: bytes, invalid: type[BrokerError], description: str) -> bytes:
    """What gzip or zlib has compressed, no further than to the limit.

    Raises `invalid`, with `description` as the beginning of its message, for what is neither or ends early;
    InvalidArgument past the limit.
    """
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # either header
    try:
        plain = decompressor.decompress(payload, MAX_PAYLOAD_BYTES + 1)
    except zlib.error as error:
        raise invalid(f"{description}.") from error
    if len(plain) > MAX_PAYLOAD_BYTES:
        raise payload_too_large()
    if not decompressor.eof:
        raise invalid(f"{description}: it ends early.")
    return plain
