"""The header blocks of responses."""

from collections.abc import Iterable

from broker.api.grpc.errors import error_trailers
from broker.api.grpc.messages import ACCEPTED_ENCODINGS
from broker.model.errors import BrokerError
from broker.net.http1.request_ids import HEADER
from broker.net.http2.headers import encode_headers, list_size
from broker.net.http2.stream import Stream

_BEGINNING = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", ACCEPTED_ENCODINGS),
)
_WITH_ID = encode_headers(*_BEGINNING, (HEADER, b""))[:-1]  # without the length byte of the id
OK = encode_headers((b"grpc-status", b"0"))
_WRONG_CONTENT_TYPE = encode_headers((b":status", b"415"))


def ok_block(trailers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """OK, with metadata of its own: some hundred bytes, which every client takes."""
    return encode_headers((b"grpc-status", b"0"), *trailers)


def beginning(request_id: bytes) -> bytes:
    """The headers of an answer."""
    return b"%b%c%b" % (_WITH_ID, len(request_id), request_id)  # below 127: one byte (RFC 7541, 5.1)


def error_block(stream: Stream, error: BrokerError, request_id: bytes, *, begun: bool) -> bytes:
    """The trailers of a failed call; if it has not `begun` its headers are among them.

    Clients limit what they read of headers, and take a larger block for a failure of its own: the details are left
    out then, and at last the message.
    """
    fields = [*(() if begun else (*_BEGINNING, (HEADER, request_id))), *error_trailers(error)]
    while stream.max_header_list is not None and list_size(*fields) > stream.max_header_list:
        if fields[-1][0] == b"grpc-status":
            break
        fields.pop()
    return encode_headers(*fields)


def refuse(stream: Stream, error: BrokerError, request_id: bytes) -> None:
    """Answer with an error, and nothing else."""
    stream.send_trailers(error_block(stream, error, request_id, begun=False))


def refuse_content_type(stream: Stream) -> None:
    """HTTP/2, but not gRPC, where nothing else is served."""
    stream.send_trailers(_WRONG_CONTENT_TYPE)
