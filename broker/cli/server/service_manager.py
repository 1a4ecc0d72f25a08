"""Socket activation and notifications of systemd, or of another service manager with the same protocol.

Sockets on which it listens are inherited (sd_listen_fds(3)), so that clients which connect while no broker runs
wait for the next one.  It is notified when the broker serves and when it begins to stop (sd_notify(3)).
"""

import logging
import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from broker.model.errors import os_reason
from broker.net.listener import CannotListen
from broker.observability.log import reason

FIRST = 3  # the descriptors come from there on
MAIN, CLEARTEXT, METRICS = "main", "cleartext", "metrics"  # FileDescriptorName= of socket units

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """`sockets`: by what they are for.  `address`: a datagram socket's, "": nobody wants to know."""

    sockets: Mapping[str, socket.socket] = field(default_factory=dict)
    address: str = ""

    def report(self, *facts: str) -> None:
        """Sends facts such as READY=1 to the service manager.  Errors are logged, and do not stop the broker."""
        if not self.address:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reporting:
                reporting.sendto("\n".join(facts).encode(), address)
        except OSError as error:
            logger.warning("the service manager at %s could not be told: %s", self.address, reason(error))


def service_manager(variables: Mapping[str, str], *, first: int = FIRST) -> ServiceManager:
    """Reads the variables of a service manager.  Raises CannotListen for a socket that the broker cannot serve."""
    sockets: dict[str, socket.socket] = {}
    if variables.get("LISTEN_PID") == str(os.getpid()):  # else they are somebody else's
        count = int(variables.get("LISTEN_FDS") or 0)
        names = variables.get("LISTEN_FDNAMES", "").split(":")
        with ExitStack() as stack:
            for number in range(count):
                given = names[number] if number < len(names) else ""
                name = given if given in (CLEARTEXT, METRICS) else MAIN
                if name in sockets:
                    raise CannotListen(
                        f"two sockets are handed over for the {name} port; let FileDescriptorName= of the units say"
                        f" which is {MAIN}, {CLEARTEXT} and {METRICS}"
                    )
                sockets[name] = stack.enter_context(_inherited(first + number, given))
            stack.pop_all()
    return ServiceManager(sockets, variables.get("NOTIFY_SOCKET", ""))


def _inherited(descriptor: int, name: str) -> socket.socket:
    listener = None
    try:
        listener = socket.socket(fileno=descriptor)
        is_listening = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise CannotListen(
            f"what is handed over as descriptor {descriptor} is no socket: {os_reason(error)}"
        ) from error
    if listener.family not in (socket.AF_INET, socket.AF_INET6) or not is_listening:
        listener.close()
        raise CannotListen(
            f"the socket {name or descriptor} that is handed over does not listen on a TCP port"
            " (ListenStream=PORT and Accept=no)"
        )
    listener.setblocking(True)  # as those that the broker makes
    listener.set_inheritable(True)
    return listener
