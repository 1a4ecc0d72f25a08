"""Calls with one request and one answer."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any

from broker.access.credentials.authenticator import Shown
from broker.access.policies.authorizer import Required
from broker.domain.caller import Caller
from broker.domain.client_certificate import ClientCertificate
from broker.domain.errors import BrokerError, DeadlineExceeded, Internal, Unavailable
from broker.front.admission import Admission
from broker.front.answer_memory import AnswerMemory
from broker.front.auditor import Auditor, is_use
from broker.front.call_log import CallLog, resource_of
from broker.front.changes import changed_in_message
from broker.front.gate import Gate
from broker.front.grpc.call import UnaryCall
from broker.front.grpc.held import BODY_TICKS, ConnectionBudget, Holder
from broker.front.grpc.messages import MessageReader, pack_message
from broker.front.grpc.responses import OK, beginning, error_block, ok_block
from broker.front.request_memory import RequestMemory
from broker.front.response_masks import mask_of, partial_answer
from broker.port.http2.frames import Code
from broker.port.http2.stream import Receiver, Stream
from broker.services.services import Services

ANSWER_SECONDS = 60.0  # for the caller to take an answer
_BEGINNING = 600  # bytes of a request, which begins with the name of what it is about


def shown(stream: Stream) -> str:
    """The method of a call, for the log."""
    return stream.headers.fields[b":path"].decode("latin-1")


class Session:
    """What the calls of a connection share.

    `running`: their tasks, which are among the server's `tasks` too.  `requests`, `answers`: the process's budgets.
    """

    def __init__(
        self,
        services: Services,
        tasks: set[asyncio.Task[Any]],
        requests: RequestMemory,
        answers: AnswerMemory,
        calls: CallLog,
        auditor: Auditor | None = None,
    ) -> None:
        self.services = services
        self.auditor = auditor
        self.calls = calls
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


async def caller_of(gate: Gate, session: Session, stream: Stream, rpc: str) -> Caller:
    """Who opened it, to call `rpc`.  Raises Unauthenticated, Unavailable."""
    fields = stream.headers.fields
    authorization = fields.get(b"authorization", b"")
    known = gate.warm(authorization)
    if known is not None:
        return known
    shown = Shown(authorization, fields.get(b"x-goog-api-key", b""), session.certificate())
    return await gate.caller(shown, rpc)


async def taken(stream: Stream, answers: AnswerMemory, resource: str, size: int) -> bool:
    """Wait until the caller has taken what was sent; till then it counts.  False: the stream was closed before.

    Raises TimeoutError: one who takes nothing must not hold the memory for ever.
    """
    with answers.holding(resource, size):
        async with asyncio.timeout(ANSWER_SECONDS):
            return await stream.drained()


class UnaryRpc(Holder):
    """Collects a request, then runs its handler.  It holds the request until the handler has ended."""

    __slots__ = (
        "_began",
        "_beginning",
        "_call",
        "_deadline",
        "_gate",
        "_handler",
        "_message",
        "_reader",
        "_request_id",
        "_rpc",
        "_running",
        "_session",
        "_stream",
        "_ticks",
        "_waits",
    )

    def __init__(
        self,
        session: Session,
        stream: Stream,
        handler: Callable[[UnaryCall, bytes], Awaitable[bytes]],
        admission: Admission,
        encoding: bytes,
        timeout: float | None,
        *,
        rpc: str,
        request_id: bytes,
        gate: Gate | None = None,
        waits: bool = False,
    ) -> None:
        """`rpc`: "Publisher.Publish".  `gate`: what the call passes first; `waits`: it may be open for long."""
        super().__init__(session.budget, admission)
        self._rpc, self._request_id = rpc, request_id
        self._gate = gate
        self._waits = waits and gate is not None
        self._session = session
        self._stream = stream
        self._handler = handler
        self._reader = MessageReader(encoding)
        self._message: bytes | None = None
        self._running = False
        self._ticks = 0
        self._began = perf_counter() if session.calls.on else 0.0
        self._beginning = b""
        self._deadline: asyncio.TimerHandle | None = None
        deadline: float | None = None
        if timeout is not None:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + timeout
            self._deadline = loop.call_later(timeout, self._too_late)
        self._call = UnaryCall(session.services, deadline, session.peer, stream.headers.fields)

    # --- the stream's receiver ---------------------------------------------------------------------------

    def data(self, payload: bytes) -> None:
        try:
            for message in self._reader.feed(payload):
                if self._message is not None:
                    raise Internal("The call has more than one request.")
                self._message = message
            arriving = self._reader.held
            self._hold(arriving + len(self._message or b""), arriving=arriving)
        except BrokerError as error:
            self._fail(error)
        else:
            self._stream.consumed(len(payload))

    def ended(self) -> None:
        if self._message is None or self._reader.is_within_message:
            self._fail(Internal("The request ends early."))
        else:
            self._running = True
            message, self._message = self._message, None
            self._session.start(self._run(message), "gRPC call")

    def gone(self) -> None:
        self._finish()
        self._call.hang_up()

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks > BODY_TICKS and not self._running:
            self._fail(DeadlineExceeded("The request did not arrive within a minute."))

    def stop(self) -> None:
        """A handler's answer is soon there: pulls do not wait in a broker that stops."""
        if not self._running:
            self._fail(Unavailable("The broker stops."))

    # --- the call ----------------------------------------------------------------------------------------

    async def _run(self, request: bytes) -> None:
        call, stream = self._call, self._stream
        if self._began:
            self._session.calls.arrived(self._began)
        self._beginning = request[:_BEGINNING]
        try:
            if self._gate is not None:
                call.caller = await caller_of(self._gate, self._session, stream, self._rpc)
                call.gate = self._gate
                if self._waits:
                    self._gate.hold(self)
            mask = mask_of(stream.headers.fields, self._rpc)
            answer = await self._handler(call, request)
            await self._tell_auditor(request, answer)
            if mask is not None:
                answer = partial_answer(answer, mask, self._rpc)
            del request
            self._let_go()
            if not await self._send(answer) and call.unsent is not None:
                await call.unsent()
        except BrokerError as error:
            self._tell_auditor_of(error)
            self._let_go()
            await self._session.calls.hold_back(self._resource, self._session.peer())
            self._fail(error)
        except asyncio.CancelledError:
            self._fail(Unavailable("The broker stops."))
            raise
        except Exception as error:
            self._session.calls.fault(shown(stream), error, self._request_id)
            self._fail(Internal("The broker met an unexpected fault; its log has the details."))
        finally:
            self._running = False
            self._finish()
            if self._gate is not None and self._waits:
                self._gate.let_go(self)

    def _tell_auditor_of(self, error: BrokerError) -> None:
        auditor = self._session.auditor
        if auditor is not None:
            auditor.called(self._rpc, self._resource, self._call.caller, self._session.peer(), error)

    async def _tell_auditor(self, request: bytes, answer: bytes) -> None:
        """Of a call that went well."""
        rpc, auditor = self._rpc, self._session.auditor
        if auditor is None or not auditor.enters(rpc):
            return
        caller, peer = self._call.caller, self._session.peer()
        if is_use(rpc):
            auditor.called(rpc, self._resource, caller, peer)
            return
        resource, fields = changed_in_message(rpc, self._resource, request, answer)
        await auditor.changed(rpc, resource, caller, peer, fields=fields, request_id=self._request_id)

    @property
    def _resource(self) -> str:
        """That the request is about; "-" if it has not come."""
        return resource_of(self._beginning)

    @property
    def caller(self) -> Caller:
        return self._call.caller

    @property
    def required(self) -> Sequence[Required]:
        return self._call.required

    def end(self, error: BrokerError) -> None:
        """The caller may not have the answer any more: what is claimed for it is released."""
        self._fail(error)
        self._call.hang_up()

    async def _send(self, answer: bytes) -> bool:
        """Returns whether the caller has taken all of it."""
        stream = self._stream
        if stream.closed or stream.trailers is not None:
            return False
        stream.send_headers(beginning(self._request_id))
        stream.send_data(pack_message(answer))
        stream.send_trailers(ok_block(self._call.trailers) if self._call.trailers else OK)
        if self._began:
            self._tell("OK")
        if not stream.outbox:
            return True
        try:
            return await taken(stream, self._session.answers, self._resource, len(answer))
        except TimeoutError:
            stream.reset(Code.ENHANCE_YOUR_CALM)
            return False

    def _too_late(self) -> None:
        if self._stream.trailers is not None:  # the caller leaves the answer in the way
            self._stream.reset(Code.CANCEL)
        self._fail(DeadlineExceeded("The deadline of the call has passed."))
        self._call.hang_up()

    def _fail(self, error: BrokerError) -> None:
        """Answer with an error, if there is no answer yet; what else arrives is ignored."""
        self._finish()
        if self._stream.trailers is None:
            self._session.calls.refused(error, self._request_id)
            self._stream.send_trailers(error_block(self._stream, error, self._request_id, begun=False))
            if self._began:
                self._tell(error.code)

    def _tell(self, code: str) -> None:
        session, call = self._session, f"{shown(self._stream)} {self._resource}"
        session.calls.answered(call, code, self._began, session.peer(), self._request_id)

    def _finish(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._reader.forget()
        if not self._running:  # else the handler has it still, whoever is gone
            self._let_go()
