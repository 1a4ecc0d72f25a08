"""Calls with one request and one response."""

import asyncio
from collections.abc import Sequence
from time import perf_counter

from broker.access.policies.authorizer import Required
from broker.access.principals.caller import Caller
from broker.api.gate import Gate
from broker.api.google.response_masks import mask_of, partial_answer
from broker.api.grpc.arriving import ArrivingCall
from broker.api.grpc.call import UnaryCall
from broker.api.grpc.held import BODY_TICKS
from broker.api.grpc.messages import Message, pack_message
from broker.api.grpc.responses import OK, beginning, error_block, ok_block
from broker.api.grpc.session import Session, Target, shown, taken, warm_caller
from broker.api.limits.request_memory import LARGE_BYTES
from broker.api.logging.changes import changed_in_message
from broker.api.payer import payer_of_error
from broker.api.rpc import Kind
from broker.model.errors import BrokerError, DeadlineExceeded, Internal, Unavailable
from broker.net.http2.frames import Code
from broker.net.http2.stream import Stream


class UnaryRpc(ArrivingCall):
    """Collects a request, then runs its handler.  It holds the request until the handler has ended.

    Its task begins when the request is whole; sooner if its caller has to be authenticated, or if the request is
    large.
    """

    __slots__ = (
        "_began",
        "_call",
        "_deadline",
        "_message",
        "_request_id",
        "_running",
        "_started",
        "_ticks",
        "_whole",
    )

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
        self._message: Message | None = None
        self._whole = False  # the whole body has arrived
        self._started = False  # the task
        self._running = False  # the handler
        self._ticks = 0
        self._began = perf_counter() if session.calls.on else 0.0
        self._deadline: asyncio.TimerHandle | None = None
        deadline: float | None = None
        if timeout is not None:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + timeout
            self._deadline = loop.call_later(timeout, self._too_late)
        self._call = UnaryCall(session.turns, target.rpc.needs, deadline, session.peer, stream.headers.fields)
        if target.gate is not None and warm_caller(target.gate, stream) is None:
            self._start()

    # --- the stream's receiver ---------------------------------------------------------------------------

    def data(self, payload: bytes) -> None:
        if self._is_over:
            return
        self._budget.requests.received += len(payload)
        try:
            for message in self._reader.feed(payload):
                if self._message is not None:
                    raise Internal("The call has more than one request.")
                self._message = message
            arriving = self._reader.held
            size = arriving + (len(self._message.data) if self._message is not None else 0)
            if size > LARGE_BYTES and not self._admitted:
                self._enter_if_known()
            self._hold(size, arriving=arriving)
        except BrokerError as error:
            self._fail(error)
            return
        self._came(len(payload))
        if not self._admitted and self._target.gate is not None:
            if not self._started and (self._message is not None or self._reader.arriving is not None):
                self._start()
            self._wake()

    def ended(self) -> None:
        if self._message is None or self._reader.is_within_message:
            self._fail(Internal("The request ends early."))
        else:
            self._whole = True
            self._start()
            self._wake()

    def gone(self) -> None:
        self._finish()
        self._call.hang_up()

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks > BODY_TICKS and not self._running:
            self._fail(DeadlineExceeded("The request did not arrive within a minute."))

    def stop(self) -> None:
        """Fails the call unless its handler runs.

        The handler answers soon: pulls do not wait in a broker that stops.
        """
        if not self._running:
            self._fail(Unavailable("The broker stops."))

    # --- the call ----------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._session.start(self._run(), "gRPC call")

    async def _run(self) -> None:
        call, gate, rpc = self._call, self._target.gate, self._target.rpc
        try:
            if gate is not None:
                await self._pass(gate)
            if not await self._is_whole():
                return
            request = await self._take()
            mask = mask_of(self._stream.headers.fields, rpc.name)
            assert self._target.unary is not None
            answer = await self._target.unary(call, request)
            await self._notify_auditor(request, answer)
            if mask is not None:
                answer = partial_answer(answer, mask, rpc.name)
            del request
            self._let_go()
            if not await self._send(answer) and call.unsent is not None:
                await call.unsent()
        except BrokerError as error:
            resource = self._resource
            self._notify_auditor_of(error)
            self._stop_reading()
            known = warm_caller(gate, self._stream) if gate is not None else None
            await self._session.calls.hold_back(payer_of_error(gate, resource, known), self._session.peer())
            self._fail(error)
        except asyncio.CancelledError:
            self._fail(Unavailable("The broker stops."))
            raise
        except Exception as error:
            self._session.calls.fault(shown(self._stream), error, self._request_id)
            self._fail(Internal("The broker met an unexpected fault; its log has the details."))
        finally:
            self._running = False
            self._finish()
            if gate is not None and rpc.kind is Kind.WAITING:
                gate.let_go(self)

    async def _pass(self, gate: Gate) -> None:
        """Pass the gate, by the headers and the first bytes; again if access has changed while the rest came."""
        call, changes = self._call, -1
        while changes != gate.changes:
            changes = gate.changes
            call.caller, call.gate = await self._caller(gate), gate
            call.required = await self._enter(gate, call.caller)
            if not await self._is_whole():
                return
        if self._target.rpc.kind is Kind.WAITING:
            gate.hold(self)

    async def _is_whole(self) -> bool:
        """Wait until all of the request has come; False: it is not wanted any more."""
        while not (self._whole or self._is_over):
            await self._wait()
        return not self._is_over

    async def _take(self) -> bytes:
        """The request, for the handler, which has it from now on."""
        message, self._message = self._message, None
        assert message is not None
        if self._began:
            self._session.calls.arrived(self._began)
        self._running = True
        return await self._read(message, self._call.caller)

    @property
    def _first(self) -> Message | None:
        return self._message

    @property
    def _is_complete(self) -> bool:
        return self._whole

    def _notify_auditor_of(self, error: BrokerError) -> None:
        auditor = self._session.auditor
        if auditor is not None:
            auditor.called(self._target.rpc, self._resource, self._call.caller, self._session.peer(), error)

    async def _notify_auditor(self, request: bytes, answer: bytes) -> None:
        """Reports a successful call to the auditor."""
        rpc, auditor = self._target.rpc, self._session.auditor
        if auditor is None or not auditor.enters(rpc):
            return
        caller, peer = self._call.caller, self._session.peer()
        if not rpc.audit.is_change:
            auditor.called(rpc, self._resource, caller, peer)
            return
        resource, fields = changed_in_message(rpc, self._resource, request, answer)
        await auditor.changed(rpc, resource, caller, peer, fields=fields, request_id=self._request_id)

    @property
    def caller(self) -> Caller:
        return self._call.caller

    @property
    def required(self) -> Sequence[Required]:
        return self._call.required

    def end(self, error: BrokerError) -> None:
        """Ends a call whose caller may not have the answer any more.  What is claimed for it is released."""
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
            self._report("OK")
        if not stream.outbox:
            return True
        try:
            return await taken(stream, self._session.answers, self._resource, len(answer))
        except TimeoutError:
            stream.reset(Code.ENHANCE_YOUR_CALM)
            return False

    def _too_late(self) -> None:
        if self._stream.trailers is not None:  # the caller does not read the response
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
                self._report(error.code)

    def _report(self, code: str) -> None:
        session, call = self._session, f"{shown(self._stream)} {self._resource}"
        session.calls.answered(call, code, self._began, session.peer(), self._request_id)

    def _finish(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._running:  # the handler still has the request, even if the caller is gone
            self._is_over = True
        else:
            self._stop_reading()
