"""Receives the request of a call: authenticates and authorizes the caller before the request is decoded.

    headers ──authenticate──► first 4 KB ──authorize──► admitted ──► decompressed ──► elements counted ──► decoded
       │                         │
       └── UNAUTHENTICATED       └── PERMISSION_DENIED: only these bytes were decompressed, and nothing decoded

If a request is not compressed and names its resource after the first 4 KB, it is scanned for the name without being
decoded.
"""

import asyncio
from collections.abc import Sequence
from functools import cache

from broker.access.policies.authorizer import Required
from broker.access.principals.caller import Caller
from broker.api.gate import Gate
from broker.api.generated.messages import request_of
from broker.api.grpc.elements import check_elements
from broker.api.grpc.held import Holder
from broker.api.grpc.messages import BEGINNING_BYTES, Message, MessageReader
from broker.api.grpc.session import Session, Target, caller_of, warm_caller
from broker.api.grpc.wire import Buffer, find_text
from broker.api.logging.call_log import resource_of
from broker.api.payer import payer_of
from broker.api.rpc import Rpc, Size
from broker.api.steps import LONG_BODY, Steps
from broker.model.errors import Internal, InvalidArgument
from broker.net.http2.stream import Stream
from broker.net.limits.payload import decompress

SHOWN_BYTES = 600  # of a request, which begins with the name of its resource


class ArrivingCall(Holder):
    """The common part of unary calls and streams.  It is a base class, since each call is one.

    The received body of a call that is not admitted is not returned to its window: no more than the window is
    received of such a body.
    """

    __slots__ = (
        "_beginning",
        "_is_over",
        "_more",
        "_reader",
        "_reads_through",
        "_session",
        "_stream",
        "_target",
        "_unreturned",
    )

    def __init__(self, session: Session, stream: Stream, target: Target, encoding: bytes) -> None:
        admitted = target.gate is None and not target.rpc.needs.is_open
        super().__init__(session.budget, target.admission, admitted=admitted)
        self._session = session
        self._stream = stream
        self._target = target
        self._reader = MessageReader(encoding, target.admission.most)
        self._more: asyncio.Future[None] | None = None
        self._beginning = b""  # of the first message
        self._is_over = False  # the rest of the request is ignored
        self._reads_through = False  # the request is scanned for its name
        self._unreturned = 0  # bytes of the body that were not returned to the window

    @property
    def _first(self) -> Message | None:
        """The first message, whole; None: it has not come."""
        raise NotImplementedError

    @property
    def _is_complete(self) -> bool:
        """Whether no more of the body will come."""
        raise NotImplementedError

    @property
    def _resource(self) -> str:
        """The resource of the request, for the log and the auditor; "-" if it cannot be read."""
        first = None if self._beginning else self._first or self._reader.arriving
        if first is not None and first.encoding is None:
            self._beginning = first.data[:SHOWN_BYTES]
        return resource_of(self._beginning)

    async def _wait(self) -> bool:
        """Wait for more of the request; returns whether it is still wanted."""
        if not self._is_over:
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        return not self._is_over

    def _wake(self) -> None:
        more, self._more = self._more, None
        if more is not None and not more.done():
            more.set_result(None)

    def _stop_reading(self) -> None:
        """Stops reading, since the call is answered, or has failed."""
        self._is_over = True
        self._wake()
        self._reader.forget()
        self._let_go()

    # --- who calls, and whether they may -----------------------------------------------------------------

    async def _caller(self, gate: Gate) -> Caller:
        """Raises Unauthenticated, Unavailable."""
        return await caller_of(gate, self._session, self._stream, self._target.rpc.needs)

    def _enter_if_known(self) -> None:
        """Admits a large request at once if the same call was allowed a moment ago.

        Otherwise many that begin together would meet the limit of requests that are not admitted.
        """
        gate, message = self._target.gate, self._first or self._reader.arriving
        caller = warm_caller(gate, self._stream) if gate is not None else None
        if gate is None or caller is None or message is None or not self._target.rpc.needs.all:
            return
        name = _name_in(self._target.rpc, message.beginning)
        if name is not None and gate.passed(caller, self._target.rpc.needs, name) is not None:
            self._admit(arriving=self._arriving)

    async def _enter(self, gate: Gate, caller: Caller) -> Sequence[Required]:
        """Let the call in; what it needed.  Nothing if there is no request: the handler, or the end, says so.

        Raises PermissionDenied, Unauthenticated, InvalidArgument, Unavailable.
        """
        required: Sequence[Required] = ()
        needs = self._target.rpc.needs
        if needs.all:
            name = await self._name()
            if name is None:
                return ()
            passed = gate.passed(caller, needs, name)
            required = await gate.allow(caller, needs, name) if passed is None else passed
        self._admit(arriving=self._reader.held)
        self._return_window()
        return required

    async def _name(self) -> str | None:
        """The name of the resource that the first message is about, "" without one; None: none came."""
        while (message := self._first or self._reader.arriving) is None:
            if self._is_complete or not await self._wait():
                return None
        first = message.beginning
        self._beginning = first[:SHOWN_BYTES]
        name = _name_in(self._target.rpc, first)
        if name is None and message.encoding is not None:
            raise InvalidArgument(
                f"A compressed request must be valid {message.encoding.decode()}, with the name of its resource in "
                f"its first {BEGINNING_BYTES} bytes."
            )
        if name is None:
            self._reads_through = True
            self._return_window()
            while (message := self._first) is None:
                if self._is_complete or not await self._wait():
                    return None
            name = _name_in(self._target.rpc, message.data)
        return name or ""

    def _came(self, size: int) -> None:
        """Counts bytes of the body that have arrived and were taken."""
        self._unreturned += size
        if self._admitted or self._reads_through:
            self._return_window()

    def _return_window(self) -> None:
        size, self._unreturned = self._unreturned, 0
        if size:
            self._stream.consumed(size)

    # --- what they sent ----------------------------------------------------------------------------------

    async def _read(self, message: Message, caller: Caller) -> bytes:
        """A message, decompressed, with no more elements than it may have.

        Raises InvalidArgument, Internal (it is not what it says), and the refusal.
        """
        request = message.data
        if not self._beginning:
            self._beginning = request[:SHOWN_BYTES] if message.encoding is None else message.beginning[:SHOWN_BYTES]
        if self._target.rpc.size is Size.SMALL:
            await self._session.address_turns.to_answer(self._session.peer())
        if message.encoding is not None or len(request) >= LONG_BODY:
            turns, project = self._session.turns, payer_of(self._target.rpc.needs, self._resource, caller)
            if message.encoding is not None:
                request = await turns.run(project, self._decompress(message, caller))
            if self._target.request_class is not None:
                await turns.run(project, check_elements(self._target.request_class, request))
        self._budget.requests.decoded += len(request)
        return request

    def _decompress(self, message: Message, caller: Caller) -> Steps[bytes]:
        assert message.encoding is not None
        whom = caller.member or self._budget
        return decompress(
            message.data,
            Internal,
            f"A message is not valid {message.encoding.decode()}",
            most=self._admission.most,
            grown=lambda size: self._unpack(whom, size),
        )


@cache
def _paths(rpc: Rpc) -> Sequence[Sequence[int]]:
    """Returns the paths of the resource name in requests of a method: their first field, or its first field.

    A request for a resource that the broker names has another resource of the project in a field of its own.
    """
    descriptor = request_of(rpc.name).DESCRIPTOR
    paths = [(1,) if descriptor.fields_by_number[1].message_type is None else (1, 1)]
    if rpc.needs.named_in:
        paths.append((descriptor.fields_by_name[rpc.needs.named_in].number,))
    return paths


def _name_in(rpc: Rpc, body: Buffer) -> str | None:
    """Raises InvalidArgument if it stands behind too many fields."""
    return next((name for path in _paths(rpc) if (name := find_text(body, path)) is not None), None)
