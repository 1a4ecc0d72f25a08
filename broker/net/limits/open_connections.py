"""Limits the open connections of a process: in total, and for one client address."""

from typing import Any, Protocol

from broker.fairness.shared_capacity import SharedCapacity
from broker.net.limits.client_address import counted_address
from broker.observability.state_changes import StateChanges


class OpenConnection(Protocol):
    @property
    def address(self) -> str:
        """The key by which connections of an address are counted (`address_in`)."""


class OpenConnections:
    """A process has at most `most`: its other files need room too.  Addresses share them
    (fairness/shared_capacity.py).
    """

    def __init__(self, connections: set[Any], most: int, states: StateChanges) -> None:
        """`connections` is the set that the server shuts down when it stops.  `states` reports refusals."""
        self._connections = connections
        self._shared_capacity = SharedCapacity(most)
        self._most = most
        self._states = states

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: OpenConnection) -> None:
        if connection not in self._connections:
            self._connections.add(connection)
            self._shared_capacity.hold((connection.address,))

    def discard(self, connection: OpenConnection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._shared_capacity.give_back((connection.address,))

    @property
    def are_crowded(self) -> bool:
        """Whether more than half of those that may be are open."""
        return len(self) > self._most // 2

    def has_capacity(self, address: str) -> bool:
        """Whether an address may open another one; where it may not, the log says so."""
        if self._shared_capacity.available((address,)) > 0:
            return True
        held = self._shared_capacity.held((address,))
        why = (
            f"{len(self)} of {self._most} are open, {held} of them from {address or 'an address that is not known'}"
        )
        self._states.happens("refused connections", "", "new connections of clients are closed", why)
        return False


def address_in(peername: object) -> str:
    """The address that a connection counts for, by the name of its peer's socket."""
    return counted_address(str(peername[0])) if isinstance(peername, tuple) and peername else ""
