"""Log lines about calls: refusals for lack of capacity, internal errors, and, at debug level, every call.

A line names the method and the resource of a call; nothing else that a caller sends is written.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from broker.api.limits.address_turns import AddressTurns, Pace
from broker.api.peer import host_of
from broker.model.errors import BrokerError
from broker.net.limits.client_address import counted_address
from broker.observability.log import extra, fields_of, seconds_text
from broker.observability.state_changes import StateChanges
from broker.observability.timing import TIMING, Timing

logger = logging.getLogger("broker.calls")

_NAMED = re.compile(r"projects/[^/\s:]+(?:/[a-z]+/[^/\s:]+)?")  # the first resource in the text of a call


class CallLog:
    """The log of calls of a process.  `on`: whether to call `begin` for each call; it is looked up once."""

    def __init__(
        self,
        states: StateChanges,
        *,
        excused: Callable[[], bool] = lambda: False,
        access: logging.Logger | None = None,
        slow_seconds: float = 0.0,
        pace: Pace | None = None,
        turns: AddressTurns | None = None,
    ) -> None:
        """`excused()`: calls are refused for a reason that was told (the database is away, the broker stops).
        `pace`: of errors, which who calls again at once would keep the process busy with, and `turns` that they
        wait for; None: all at once.
        `access` has a line for each call; `slow_seconds`: a call that takes so long has one that says why; 0: none.
        """
        self._line = access.info if access else logger.debug
        self._has_lines = access is not None or logger.isEnabledFor(logging.DEBUG)
        self.on = self._has_lines or slow_seconds > 0
        self._slow_seconds = slow_seconds
        self._states = states
        self._excused = excused
        self.pace = pace
        self._turns = turns

    def begin(self) -> float:
        """A call, in this task; by perf_counter."""
        if self._slow_seconds:
            TIMING.set(Timing())
        return perf_counter()

    def arrived(self, began: float) -> None:
        """Begins the timing of a call that is complete and goes on in this task.  `began`: when it began."""
        if self._slow_seconds:
            TIMING.set(Timing(body=perf_counter() - began))

    def answered(self, call: str, code: object, began: float, peer: object, request_id: bytes) -> None:
        """Logs a call with its status, when it began, and the caller's address."""
        seconds = perf_counter() - began
        if self._has_lines:
            address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else "?"
            about = extra(_fields(call, code, seconds, peer), request_id)
            self._line("%s %s %.1f ms %s", call, code, seconds * 1000, address, extra=about)
        timing = TIMING.get()
        if self._slow_seconds and timing is not None and seconds - timing.messages >= self._slow_seconds:
            what = f"slow request: {call} {code} took {seconds:.3f} s: {timing.described(seconds)}"
            about = _fields(call, code, seconds, peer)
            self._states.report("slow requests", what, level=logging.WARNING, request_id=request_id, fields=about)

    def refused(self, error: BrokerError, request_id: bytes) -> None:
        """Records that a call was answered with an error.

        One that is worth another try is a sign of too much load.
        """
        if error.retry_seconds is not None and error.__cause__ is None and not self._excused():
            what = f"calls are refused with {error.code}"
            name, why = f"{error.code} {error.log_message}", error.log_message.rstrip(".")
            about = fields_of(status=error.code)
            self._states.happens("refused calls", name, what, why, request_id=request_id, fields=about)

    async def hold_back(self, payer: str, peer: object) -> None:
        """Delays an error until its caller has a turn, and longer if a project or an address causes very many (M1).
        Returns at once if the process stops.

        `payer`: the project of the caller ("": the caller is not known, and only the address counts).
        """
        if self.pace is None:
            return
        if self._turns is not None:
            with suppress(asyncio.CancelledError):
                await self._turns.to_answer(peer, payer)
        counted = [payer, counted_address(host_of(peer))] if payer else [counted_address(host_of(peer))]
        if seconds := max(map(self.pace.delay, counted)):
            with suppress(asyncio.CancelledError):  # it must be answered nevertheless
                await asyncio.sleep(seconds)

    def fault(self, call: str, error: Exception, request_id: bytes) -> None:
        """Logs a defect of the broker: the first of a kind with its traceback, the others are counted."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
        name = f"{type(error).__name__} {where}"
        what = f"unexpected fault in {call}"
        about = _fields(call, "INTERNAL")
        self._states.happens(
            "faults", name, what, name, level=logging.ERROR, error=error, request_id=request_id, fields=about
        )


def _fields(call: str, code: object, seconds: float | None = None, peer: object = None) -> dict[str, object]:
    """Returns the log fields of a call.

    `call` is "POST /v1/projects/p/topics/t:publish", or a method and a resource.
    """
    named = _NAMED.search(call)
    return {"event": "call"} | fields_of(
        named[0] if named else "",
        call=call,
        status=str(code),
        duration=None if seconds is None else seconds_text(seconds),
        remote_address=host_of(peer),
    )


def resource_of(request: bytes) -> str:
    """The resource that a request over gRPC is about; "-" if it cannot be told.

    In all of Google's requests that is the first field, or the first field of the resource that is the first field.
    """
    for _ in range(2):
        if request[:1] != b"\x0a":  # field 1, with a length
            break
        size, start = request[1:2], 2
        length = size[0] if size else 0
        if length & 0x80:
            length, start = length & 0x7F | request[2] << 7 if len(request) > 2 else 0, 3
        request = request[start : start + length]
        if request.startswith(b"projects/"):
            return request.decode("utf-8", "replace")
    return "-"
