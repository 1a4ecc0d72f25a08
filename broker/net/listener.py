"""The socket from which all processes of a broker accept, and its names for people and clients."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

from broker.model.errors import os_reason

_BACKLOG = 2048
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (and how this machine reaches itself then)

_HINTS = {
    errno.EADDRINUSE: "; end the program that listens there, or choose another --port (0: a free one)",
    errno.EADDRNOTAVAIL: "; --host must be an address of this machine",
    errno.EACCES: "; a --port below 1024 needs more rights",
}


class CannotListen(Exception):
    """The address cannot be had; the message is one line for the operator."""


@contextmanager
def bound_socket(host: str, port: int, *, prefix: str = "") -> Iterator[socket.socket]:
    """A socket that has its address, so that nobody else gets it, and refuses connections until `listen`.

    `prefix` is of its options, for whoever is told that they will not do.  Raises CannotListen.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise CannotListen(_why_not(host, port, error, prefix)) from error
        listener.set_inheritable(True)
        yield listener


def listen(listener: socket.socket) -> None:
    """Accepts connections from now on; they wait until a process accepts them.  Raises CannotListen."""
    try:
        listener.listen(_BACKLOG)
    except OSError as error:  # another process was bound to it too, and was first
        host, port = listener.getsockname()[:2]
        raise CannotListen(_why_not(host, port, error)) from error


def _why_not(host: str, port: int, error: OSError, prefix: str = "") -> str:
    hint = _HINTS.get(error.errno or 0, "").replace("--", f"--{prefix}")
    return f"cannot listen on {host_and_port(host, port)}: {os_reason(error)}{hint}"


def host_and_port(host: str, port: int) -> str:
    """Formats host and port for a URL."""
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def url(listener: socket.socket, *, secure: bool = False) -> str:
    """Returns the URL of the broker; `secure`: with TLS."""
    host, port = listener.getsockname()[:2]
    return f"{_scheme(secure)}://{host_and_port(host, port)}"


def base_url(listener: socket.socket, *, secure: bool = False) -> str:
    """Returns the URL under which receivers on this machine reach the broker; `secure`: with TLS."""
    host, port = listener.getsockname()[:2]
    return f"{_scheme(secure)}://{host_and_port('localhost' if host in _EVERYWHERE else host, port)}"


def _scheme(secure: bool) -> str:
    return "https" if secure else "http"


def emulator_host(listener: socket.socket) -> str:
    """Host and port for clients on this machine, as PUBSUB_EMULATOR_HOST is to be without TLS."""
    host, port = listener.getsockname()[:2]
    return host_and_port(_EVERYWHERE.get(host, host), port)


def is_open_to_others(listener: socket.socket) -> bool:
    """Whether other machines may reach it."""
    return not ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
