"""A gRPC call, as a handler sees it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from broker.access.policies.authorizer import Required
from broker.access.principals.caller import ANONYMOUS, Caller
from broker.api.gate import Gate
from broker.api.permissions import Needs
from broker.api.steps import R, Steps
from broker.fairness.loop_turns import LoopTurns
from broker.model.names import project_within


class UnaryCall:
    """A request and its answer.  `caller` is ANONYMOUS where authentication is off.

    `hung_up()` completes once the caller has cancelled the call, has lost the connection or has let its deadline
    pass.  A handler is never cancelled for that: what it has begun may already be committed.  `trailers` is
    metadata that comes after the answer.  `required` is what the call was allowed for.
    """

    __slots__ = (
        "_deadline",
        "_gone",
        "_waiting",
        "caller",
        "gate",
        "loop_turns",
        "metadata",
        "needs",
        "peer",
        "required",
        "trailers",
        "unsent",
    )

    def __init__(
        self,
        loop_turns: LoopTurns,
        needs: Needs,
        deadline: float | None = None,
        peer: Callable[[], object] = lambda: None,
        metadata: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """`deadline`: the caller's, in the event loop's time; `peer()` is the address of the caller's socket;
        `metadata`: what came with the call.
        """
        self.metadata = metadata or {}
        self.peer = peer
        self.loop_turns = loop_turns
        self.needs = needs
        self.caller = ANONYMOUS
        self.gate: Gate | None = None
        self.required: Sequence[Required] = ()
        self._deadline = deadline
        self.trailers: Sequence[tuple[bytes, bytes]] = ()
        self._gone = False
        self._waiting: asyncio.Future[None] | None = None
        self.unsent: Callable[[], Awaitable[None]] | None = None

    def unless_sent(self, undo: Callable[[], Awaitable[None]]) -> None:
        """Registers what to undo if the answer cannot be delivered to the caller as a whole."""
        self.unsent = undo

    def seconds_left(self) -> float | None:
        """Returns how many seconds the caller still waits for the answer; None: without end."""
        return None if self._deadline is None else self._deadline - asyncio.get_running_loop().time()

    def has_hung_up(self) -> bool:
        return self._gone

    async def hung_up(self) -> None:
        if not self._gone:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting)

    def hang_up(self) -> None:
        """Records that the caller accepts no answer any more."""
        self._gone = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


async def allow(call: "UnaryCall | StreamingCall", name: str) -> None:
    """Check that the caller has what the call needs on `name`.  Raises PermissionDenied, Unavailable."""
    if call.gate is not None:
        passed = call.gate.passed(call.caller, call.needs, name)
        call.required = await call.gate.allow(call.caller, call.needs, name) if passed is None else passed


async def in_steps(call: "UnaryCall | StreamingCall", name: str, steps: Steps[R]) -> R:
    """Runs work about `name` that takes the event loop for long, each step in a turn of its project.

    Returns its result.
    """
    return await call.loop_turns.run(project_within(name), steps)


async def turn_to_read(call: UnaryCall, name: str, body: bytes) -> None:
    """Waits for a turn before a long request about `name` is read, if other projects wait."""
    turns, project = call.loop_turns, project_within(name)
    if not turns.begin(project, len(body)):
        await turns.wait(project, len(body))


class StreamingCall(Protocol):
    """A call with any number of requests and answers.

    A handler ends the call by returning (OK) or by raising a BrokerError.  It is cancelled when the caller cancels
    the call, loses the connection or lets its deadline pass, and when the broker stops (UNAVAILABLE then).
    """

    @property
    def loop_turns(self) -> LoopTurns: ...

    @property
    def caller(self) -> Caller: ...

    @property
    def gate(self) -> Gate | None: ...

    @property
    def needs(self) -> Needs: ...

    def peer(self) -> object:
        """The address of the caller's socket."""

    required: Sequence[Required]

    def requests(self) -> AsyncIterator[bytes]:
        """The requests as they come, to the caller's half-close; what is not taken is not acknowledged to the
        caller's flow control, so that one who sends too fast has to wait.
        """

    def when_gone(self, act: Callable[[], None]) -> None:
        """Registers what to call the moment the caller cancels the call or loses the connection.

        The handler itself notices that later.
        """

    async def send(self, message: bytes, *, unless_sent: Callable[[], None] = lambda: None) -> None:
        """Send an answer; returns once the caller's windows and the socket have taken all of it.

        `unless_sent` is called if they have not when this ends, however it ends: a call that is cancelled in the
        very moment in which its answer was taken has sent it.  Raises Unavailable if that takes a minute.
        """
