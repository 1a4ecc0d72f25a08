"""The state that the calls of a connection share, and the method that each call names."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from broker.access.credentials.authenticator import Shown
from broker.access.principals.caller import Caller
from broker.api.gate import Gate
from broker.api.grpc.call import StreamingCall, UnaryCall
from broker.api.grpc.held import ConnectionBudget
from broker.api.limits.address_turns import AddressTurns
from broker.api.limits.admission import Admission
from broker.api.limits.answer_memory import AnswerMemory
from broker.api.limits.request_memory import RequestMemory
from broker.api.logging.auditor import Auditor
from broker.api.logging.call_log import CallLog
from broker.api.permissions import Needs
from broker.api.rpc import Rpc
from broker.fairness.loop_turns import LoopTurns
from broker.model.client_certificate import ClientCertificate
from broker.net.http2.stream import Receiver, Stream

ANSWER_SECONDS = 60.0  # for the caller to read a response


class Target(NamedTuple):
    """A method of the API.  One of the handlers is given; that of unary calls is within their limits.

    `gate`: what its calls pass first; None: anybody may call it.  `request_class`: protobuf's; None: it is unknown.
    """

    rpc: Rpc
    unary: Callable[[UnaryCall, bytes], Awaitable[bytes]] | None
    streaming: Callable[[StreamingCall], Awaitable[None]] | None
    admission: Admission
    gate: Gate | None
    request_class: Any


class Session:
    """The state that the calls of a connection share.

    `running`: their tasks, which are among the server's `tasks` too.  `requests`, `answers`: the process's budgets.
    """

    def __init__(
        self,
        tasks: set[asyncio.Task[Any]],
        requests: RequestMemory,
        answers: AnswerMemory,
        calls: CallLog,
        turns: LoopTurns,
        address_turns: AddressTurns,
        auditor: Auditor | None = None,
    ) -> None:
        self.auditor = auditor
        self.calls = calls
        self.turns = turns
        self.address_turns = address_turns
        self.peer: Callable[[], object] = lambda: None  # the caller's address
        self.certificate: Callable[[], ClientCertificate | None] = lambda: None  # which TLS has verified
        self.others: Callable[[Stream], Receiver] | None = None  # accepts what is not gRPC
        self.budget = ConnectionBudget(requests)
        self.answers = answers
        self.running: set[asyncio.Task[Any]] = set()
        self._tasks = tasks

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.running.add(task)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        self._tasks.discard(task)


def shown(stream: Stream) -> str:
    """The method of a call, for the log."""
    return stream.headers.fields[b":path"].decode("latin-1")


def warm_caller(gate: Gate, stream: Stream) -> Caller | None:
    """The caller that opened the stream, if its credential was verified before."""
    return gate.warm(stream.headers.fields.get(b"authorization", b""))


async def caller_of(gate: Gate, session: Session, stream: Stream, needs: Needs) -> Caller:
    """The caller that opened the stream, for a call with these needs.  Raises Unauthenticated, Unavailable."""
    known = warm_caller(gate, stream)
    if known is not None:
        return known
    fields = stream.headers.fields
    authorization, api_key = fields.get(b"authorization", b""), fields.get(b"x-goog-api-key", b"")
    await session.address_turns.to_verify(session.peer(), authorization)
    return await gate.caller(Shown(authorization, api_key, session.certificate()), needs)


async def taken(stream: Stream, answers: AnswerMemory, resource: str, size: int) -> bool:
    """Wait until the caller has taken what was sent; till then it counts.  False: the stream was closed before.

    Raises TimeoutError: one who takes nothing must not hold the memory for ever.
    """
    with answers.holding(resource, size):
        async with asyncio.timeout(ANSWER_SECONDS):
            return await stream.drained()
