"""gRPC's framing of messages in a body: a flag (1: compressed), the length in four bytes, and the message."""

import struct
from typing import NamedTuple

from broker.model.errors import BrokerError, Internal, Unimplemented
from broker.net.limits.payload import MAX_PAYLOAD_BYTES, beginning_of, payload_too_large

ACCEPTED_ENCODINGS = b"identity,deflate,gzip"
BEGINNING_BYTES = 4_096  # of a message, which are searched first for the name of its resource

_PREFIX = struct.Struct(">BI")
PREFIX_BYTES = _PREFIX.size


def pack_message(message: bytes) -> bytes:
    return _PREFIX.pack(0, len(message)) + message


class Message(NamedTuple):
    """A message as it was sent.  `encoding`: what it is compressed with; None: it is not."""

    data: bytes
    encoding: bytes | None = None

    @property
    def beginning(self) -> bytes:
        """The first bytes of the message, decompressed: BEGINNING_BYTES at most."""
        first = self.data[:BEGINNING_BYTES]
        return first if self.encoding is None else beginning_of(first, BEGINNING_BYTES)


class MessageReader:
    """Takes the pieces of a body and gives its messages, as they were sent: nothing is decompressed here.

    `encoding` is the grpc-encoding header's, `most` how many bytes a message may have.

    What is not complete is kept in one piece: a list of the pieces would take far more than their bytes if they are
    small.
    """

    def __init__(self, encoding: bytes, most: int = MAX_PAYLOAD_BYTES) -> None:
        self._encoding = encoding
        self._most = most
        self._begun = bytearray()  # the incomplete message
        self._wanted = PREFIX_BYTES  # the bytes that it needs, with its prefix, as far as is known
        self._compressed = False

    @property
    def is_within_message(self) -> bool:
        """A body that ends here ends too early."""
        return bool(self._begun)

    @property
    def held(self) -> int:
        """The bytes of a message that is not complete."""
        return len(self._begun)

    @property
    def arriving(self) -> Message | None:
        """The received part of an incomplete message; None: its BEGINNING_BYTES have not arrived."""
        if len(self._begun) < PREFIX_BYTES + BEGINNING_BYTES:
            return None
        first = bytes(self._begun[PREFIX_BYTES : PREFIX_BYTES + BEGINNING_BYTES])
        return Message(first, self._encoding if self._compressed else None)

    def feed(self, piece: bytes) -> list[Message]:
        """The messages that are complete with this piece.

        Raises InvalidArgument for one that is too large, as soon as its length is known; Unimplemented for a
        compression that is not served; Internal for what is no message.
        """
        body: bytes | bytearray = piece
        if self._begun:
            body = self._begun
            body += piece
        messages: list[Message] = []
        at, size = 0, len(body)
        while size - at >= self._wanted:
            if self._wanted == PREFIX_BYTES:
                self._wanted += self._message_length(body, at)
            if size - at >= self._wanted:
                data = _cut(body, at + PREFIX_BYTES, at + self._wanted)
                messages.append(Message(data, self._encoding if self._compressed else None))
                at += self._wanted
                self._wanted = PREFIX_BYTES
        if at == size:
            self._begun = bytearray()
        elif at or body is piece:
            self._begun = bytearray(body[at:])
        return messages

    def forget(self) -> None:
        """Forgets what has arrived, since nothing more is wanted."""
        self._begun = bytearray()

    def _message_length(self, body: bytes | bytearray, at: int) -> int:
        flag, length = _PREFIX.unpack_from(body, at)
        if flag > 1:
            raise Internal("A message has flags that gRPC does not know.")
        if length > self._most:
            raise payload_too_large(self._most)
        if flag and self._encoding not in (b"gzip", b"deflate"):
            raise unsupported_encoding(self._encoding)
        self._compressed = bool(flag)
        return int(length)


def _cut(body: bytes | bytearray, start: int, stop: int) -> bytes:
    return body[start:stop] if isinstance(body, bytes) else bytes(memoryview(body)[start:stop])


def unsupported_encoding(encoding: bytes) -> BrokerError:
    accepted = ACCEPTED_ENCODINGS.decode()
    return Unimplemented(f"Unsupported grpc-encoding: {encoding.decode('latin-1')}. Accepted are {accepted}.")
