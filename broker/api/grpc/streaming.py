"""Calls with any number of requests and responses."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from time import perf_counter

from broker.access.policies.authorizer import Required
from broker.access.principals.caller import ANONYMOUS, Caller
from broker.api.gate import Gate
from broker.api.grpc.arriving import ArrivingCall
from broker.api.grpc.held import BODY_TICKS
from broker.api.grpc.messages import Message, pack_message
from broker.api.grpc.responses import OK, beginning, error_block
from broker.api.grpc.session import Session, Target, shown, taken, warm_caller
from broker.api.limits.request_memory import LARGE_BYTES
from broker.api.payer import payer_of_error
from broker.api.permissions import Needs
from broker.fairness.loop_turns import LoopTurns
from broker.model.errors import BrokerError, DeadlineExceeded, Internal, Unavailable
from broker.net.http2.stream import Stream

REQUEST_BYTES = 128  # the overhead of a queued request


class StreamingRpc(ArrivingCall):
    """The receiver of a stream, and the StreamingCall of its handler, which starts with the stream.

    It holds the requests that its handler has not taken, as they were sent, and what has come of the next.
    """

    def __init__(
        self,
        session: Session,
        stream: Stream,
        target: Target,
        encoding: bytes,
        timeout: float | None,
        *,
        request_id: bytes,
    ) -> None:
        super().__init__(session, stream, target, encoding)
        self._request_id = request_id
        self._requests: deque[tuple[Message, int]] = deque()  # with the bytes of the body that each completed
        self._queued = 0  # bytes of those requests
        self._ticks = 0  # since the first byte of the arriving request
        self._charged = 0  # bytes of the body that are not part of a queued request yet
        self._ended = self._begun = False
        self._error: BrokerError | None = None  # the error of the call
        self._started = False
        self._caller_known = ANONYMOUS
        self.required: Sequence[Required] = ()
        self._when_gone: Callable[[], None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._opened = perf_counter() if session.calls.on else 0.0
        self._task = session.start(self._run(), "gRPC stream")
        if timeout is not None:
            late = DeadlineExceeded("The deadline of the call has passed.")
            self._deadline = asyncio.get_running_loop().call_later(timeout, self._cancel, late)

    # --- the stream's receiver ---------------------------------------------------------------------------

    def data(self, payload: bytes) -> None:
        if self._error is not None or self._is_over:
            return
        self._charged += len(payload)
        self._budget.requests.received += len(payload)
        if not self._reader.is_within_message:
            self._ticks = 0
        try:
            for message in self._reader.feed(payload):
                self._requests.append((message, self._charged))
                self._queued += len(message.data) + REQUEST_BYTES
                self._charged = self._ticks = 0
            self._hold_all()
        except BrokerError as error:
            self._cancel(error)
        if self._reader.is_within_message:  # a message that is larger than the window must be able to arrive
            charged, self._charged = self._charged, 0
            self._came(charged)
        self._wake()

    def ended(self) -> None:
        self._ended = True
        self._wake()

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks > BODY_TICKS and self._reader.is_within_message:
            self._cancel(DeadlineExceeded("The request did not arrive within a minute."))

    def gone(self) -> None:
        if self._when_gone is not None:
            self._when_gone()
        if self._started:  # a task that has not begun would be cancelled before its first line
            self._task.cancel()

    def end(self, error: BrokerError) -> None:
        """End the call with an error."""
        self._cancel(error)

    def stop(self) -> None:
        self._cancel(Unavailable("The broker stops."))

    # --- the handler's call ------------------------------------------------------------------------------

    @property
    def loop_turns(self) -> LoopTurns:
        return self._session.turns

    @property
    def gate(self) -> Gate | None:
        return self._target.gate

    @property
    def needs(self) -> Needs:
        return self._target.rpc.needs

    @property
    def caller(self) -> Caller:
        return self._caller_known

    def peer(self) -> object:
        return self._session.peer()

    async def requests(self) -> AsyncIterator[bytes]:
        while True:
            while self._requests:
                message, size = self._requests.popleft()
                self._stream.consumed(size)
                yield await self._read(message, self._caller_known)
                self._queued -= len(message.data) + REQUEST_BYTES
                self._drop_unpacked()
                self._hold_all()
            if self._ended:
                if self._reader.is_within_message:
                    raise Internal("The last request ends early.")
                return
            if not await self._wait():
                return

    def when_gone(self, act: Callable[[], None]) -> None:
        self._when_gone = act

    async def send(self, message: bytes, *, unless_sent: Callable[[], None] = lambda: None) -> None:
        self._begin()
        sent_at = self._stream.send_data(pack_message(message))
        try:
            if self._stream.outbox:
                await taken(self._stream, self._session.answers, self._resource, len(message))
        except TimeoutError:
            raise Unavailable("The client does not take what it is sent.") from None
        finally:
            if self._stream.written < sent_at:
                # The call is abandoned, and the caller gets the status at once.  The window may open until then.
                self._stream.outbox.clear()
                unless_sent()

    @property
    def _first(self) -> Message | None:
        return self._requests[0][0] if self._requests else None

    @property
    def _is_complete(self) -> bool:
        return self._ended

    # --- the call ----------------------------------------------------------------------------------------

    def _hold_all(self) -> None:
        arriving = self._reader.held
        if arriving + self._queued > LARGE_BYTES and not self._admitted:
            self._enter_if_known()
        self._hold(self._queued + arriving, arriving=arriving)

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._stream.send_headers(beginning(self._request_id))

    def _cancel(self, error: BrokerError) -> None:
        if self._error is None:
            self._error = error
            if self._started:
                self._task.cancel()
            else:
                self._fail(error)

    async def _run(self) -> None:
        self._started = True
        gate = self._target.gate
        try:
            if not self._stream.closed:
                if gate is not None:
                    self._caller_known = caller = await self._caller(gate)
                    gate.hold(self)
                    self.required = await self._enter(gate, caller)
                assert self._target.streaming is not None
                await self._target.streaming(self)
                self._audit()
                self._begin()
                self._stream.send_trailers(OK)
                self._report("OK")
        except BrokerError as error:
            resource = self._resource
            self._audit(error)
            self._stop_reading()
            known = warm_caller(gate, self._stream) if gate is not None else None
            await self._session.calls.hold_back(payer_of_error(gate, resource, known), self._session.peer())
            self._fail(error)
        except asyncio.CancelledError:
            by_caller = self._error is not None or self._stream.closed
            self._fail(self._error or Unavailable("The broker stops."))
            if not by_caller:
                raise
        except Exception as error:
            self._session.calls.fault(shown(self._stream), error, self._request_id)
            self._fail(Internal("The broker met an unexpected fault; its log has the details."))
        finally:
            if gate is not None:
                gate.let_go(self)
            if self._deadline is not None:
                self._deadline.cancel()
            self._requests.clear()
            self._stop_reading()

    def _audit(self, error: BrokerError | None = None) -> None:
        auditor = self._session.auditor
        if auditor is not None:
            auditor.called(self._target.rpc, self._resource, self._caller_known, self._session.peer(), error)

    def _report(self, code: str) -> None:
        if self._opened:
            session, call = self._session, f"{shown(self._stream)} {self._resource}"
            session.calls.answered(call, code, self._opened, session.peer(), self._request_id)

    def _fail(self, error: BrokerError) -> None:
        if self._stream.trailers is None and not self._stream.closed:
            self._session.calls.refused(error, self._request_id)
        self._report(error.code)
        self._stream.send_trailers(error_block(self._stream, error, self._request_id, begun=self._begun))
