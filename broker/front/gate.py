"""What each call passes where authentication is required: who calls, and whether it may.

The doors hand in what a request shows, before its handler runs.  What is open for long (a stream, a pull that
waits) is held here meanwhile, and ended when its credential is good no more.  What was let pass is known until the
version changes: the same call again costs two looks into dictionaries.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from broker.access.credentials import refusals
from broker.access.credentials.authenticator import Authenticator, Shown
from broker.access.policies.authorizer import Authorizer, Required
from broker.access.version import AccessVersion
from broker.domain.caller import Caller
from broker.domain.errors import BrokerError, PermissionDenied
from broker.front.permissions import NEEDS, FindSubscription, required_by, required_on

# Before anybody has shown who they are: what says that the process lives, and nothing else.
OPEN_SERVICES = frozenset(("grpc.health.v1.Health",))
# Calls of REST and unary ones that may be open for long.
WAITING_RPCS = frozenset(
    ("Subscriber.Pull", "TailSubscription", "TailTopic", "ExportTopic", "Operations.WaitOperation")
)

MAX_PASSED = 50_000  # calls of a caller on a resource; some 15 MB

CHALLENGE = b'Bearer realm="pubsub-broker"'  # WWW-Authenticate, with UNAUTHENTICATED


class OpenCall(Protocol):
    """A call that is held: `end` answers it with the error, if it is not answered yet."""

    @property
    def caller(self) -> Caller: ...

    @property
    def required(self) -> Sequence[Required]:
        """What it was allowed for."""

    def end(self, error: BrokerError) -> None: ...


class Gate:
    """One for a process, of both doors."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        version: AccessVersion,
        *,
        find_subscription: FindSubscription,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._find_subscription = find_subscription
        self.warm = authenticator.warm  # the caller with this `Authorization`, if it is known without a look
        self._passed: dict[tuple[Caller, str, str], Sequence[Required]] = {}
        self._generation = 0  # of what is known to pass
        self._looking: asyncio.Task[None] | None = None  # over the open calls
        self._open: dict[OpenCall, asyncio.TimerHandle | None] = {}  # with what ends each as its credential ends
        version.before_change(self._forget)
        version.after_change(self._look_again)

    async def caller(self, shown: Shown, rpc: str) -> Caller:
        """ANONYMOUS where nothing is shown, and some policy lets all users do something.

        Raises Unauthenticated, Unavailable.
        """
        caller = await self._authenticator.caller(shown)
        if not caller.authenticated and not (NEEDS.get(rpc) and await self._authorizer.is_open()):
            raise refusals.missing()
        return caller

    def passed(self, caller: Caller, rpc: str, name: str) -> Sequence[Required] | None:
        """What a call needed that `allow` has let pass; None: it has to look.  For a caller who is `warm`."""
        return self._passed.get((caller, rpc, name))

    async def allow(self, caller: Caller, rpc: str, name: str) -> Sequence[Required]:
        """Let a call about the resource of this name pass; what it needed.

        Raises PermissionDenied, Unauthenticated (of a caller who has shown nothing), InvalidArgument (nothing can
        have that name), Unavailable.
        """
        generation, required = self._generation, required_on(rpc, name)
        await self._check(caller, required)
        if generation == self._generation:  # else it may rest on what was so before
            if len(self._passed) >= MAX_PASSED:
                self._passed.clear()
            self._passed[caller, rpc, name] = required
        return required

    async def allow_request(
        self, caller: Caller, rpc: str, request: Any, *, or_update: bool = False
    ) -> Sequence[Required]:
        """Let a call with Google's request pass; what it needed.  Raises as `allow`."""
        required = await required_by(rpc, request, self._find_subscription, or_update=or_update)
        await self._check(caller, required)
        return required

    async def may(self, caller: Caller, required: Required) -> bool:
        """Whether a caller may do one thing.  Raises Unavailable."""
        try:
            await self._authorizer.check(caller, [required])
        except PermissionDenied:
            return False
        return True

    def hold(self, call: OpenCall) -> None:
        """End the call once its credential is good no more; until `let_go`.

        One whose token has expired is UNAVAILABLE, not UNAUTHENTICATED: Google's libraries call again then, with a
        new token, while the other ends their subscribers for good, an hour after each start.
        """
        left = self._authenticator.seconds_left(call.caller)
        ending = None
        if left is not None:
            ending = asyncio.get_running_loop().call_later(left, call.end, refusals.expired_meanwhile())
        self._open[call] = ending

    def let_go(self, call: OpenCall) -> None:
        ending = self._open.pop(call, None)
        if ending is not None:
            ending.cancel()

    async def _check(self, caller: Caller, required: Sequence[Required]) -> None:
        try:
            await self._authorizer.check(caller, required)
        except PermissionDenied:
            if caller.authenticated:
                raise
            raise refusals.missing() from None  # whoever shows who they are may be allowed

    async def _forget(self, _: object) -> None:
        self._generation += 1
        self._passed.clear()

    def _look_again(self) -> None:
        self._generation += 1  # a caller that was known before the change may have passed since
        self._passed.clear()
        for call in list(self._open):
            if not self._authenticator.still_holds(call.caller):
                call.end(refusals.revoked())
        if self._open:
            if self._looking is not None:
                self._looking.cancel()
            looking = self._end_forbidden(list(self._open))
            self._looking = asyncio.get_running_loop().create_task(looking, name="open calls are looked at again")

    async def _end_forbidden(self, calls: Sequence[OpenCall]) -> None:
        """A later change cancels this, and looks at all of them."""
        for call in calls:
            try:
                await self._check(call.caller, call.required)
            except BrokerError as error:
                call.end(error)
