"""What each call passes where authentication is required: who calls, and whether it may.

The doors hand in what a request shows, before its handler runs.  What is open for long (a stream, a pull that
waits) is held here meanwhile, and ended when its credential is good no more.
"""

from typing import Protocol

from broker.access.credentials import refusals
from broker.access.credentials.authenticator import Authenticator, Shown
from broker.access.version import AccessVersion
from broker.domain.caller import Caller
from broker.domain.errors import BrokerError

# Before anybody has shown who they are: what says that the process lives, and nothing else.
OPEN_SERVICES = frozenset(("grpc.health.v1.Health",))
WAITING_RPCS = frozenset(("Subscriber.Pull",))  # unary calls that may be open for long

CHALLENGE = b'Bearer realm="pubsub-broker"'  # WWW-Authenticate, with UNAUTHENTICATED


class OpenCall(Protocol):
    """A call that is held: `end` answers it with the error, if it is not answered yet."""

    @property
    def caller(self) -> Caller: ...

    def end(self, error: BrokerError) -> None: ...


class Gate:
    """One for a process, of both doors."""

    def __init__(self, authenticator: Authenticator, version: AccessVersion) -> None:
        self._authenticator = authenticator
        self._open: set[OpenCall] = set()
        version.after_change(self._look_again)

    def warm(self, authorization: bytes) -> Caller | None:
        """The caller with this `Authorization`, if it is known without a look."""
        return self._authenticator.warm(authorization)

    async def caller(self, shown: Shown) -> Caller:
        """Raises Unauthenticated, Unavailable."""
        caller = await self._authenticator.caller(shown)
        if not caller.authenticated:
            raise refusals.missing()
        return caller

    def hold(self, call: OpenCall) -> None:
        """End the call once its credential is good no more; until `let_go`."""
        self._open.add(call)

    def let_go(self, call: OpenCall) -> None:
        self._open.discard(call)

    def _look_again(self) -> None:
        for call in list(self._open):
            if not self._authenticator.still_holds(call.caller):
                call.end(refusals.revoked())
