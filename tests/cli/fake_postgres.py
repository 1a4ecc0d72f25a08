"""A server that speaks PostgreSQL's protocol as far as the end of a login: for logins that a real one of the tests
does not refuse, and for versions that are not installed.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


def _says(name: str, value: str) -> bytes:
    text = f"{name}\0{value}\0".encode()
    return b"S" + struct.pack("!i", 4 + len(text)) + text


READY = (
    b"R" + struct.pack("!ii", 8, 0)  # AuthenticationOk
    + _says("server_version", "14.9")
    + _says("in_hot_standby", "off") + _says("default_transaction_read_only", "off")
    + b"Z" + struct.pack("!i", 5) + b"I"
)  # fmt: skip


def refusal(sqlstate: str, message: str) -> bytes:
    fields = f"SFATAL\0VFATAL\0C{sqlstate}\0M{message}\0\0".encode()
    return b"E" + struct.pack("!i", 4 + len(fields)) + fields


@contextmanager
def answering_logins(answer: bytes) -> Iterator[str]:
    """A URL, with the password "secret", at which every login gets this answer within the block."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server, answer), daemon=True).start()
        yield f"postgresql://user:secret@127.0.0.1:{server.getsockname()[1]}/db"
        server.shutdown(socket.SHUT_RDWR)  # ends accept()


def _serve(server: socket.socket, answer: bytes) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            with client, client.makefile("rb") as heard, suppress(OSError, struct.error):
                while True:
                    length, code = struct.unpack("!ii", heard.read(8))
                    heard.read(length - 8)
                    if code not in (_SSL_REQUEST, _GSS_REQUEST):
                        break
                    client.sendall(b"N")
                client.sendall(answer)
                heard.read(1)  # until the client has had enough
