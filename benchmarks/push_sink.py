"""`python -m benchmarks.push_sink`: an endpoint for pushes that answers as fast as Python can.

    POST /ok/LANE[/NUMBER]          204 at once
    POST /hang/LANE[/NUMBER]        no answer, ever
    POST /poison-KIND/LANE[/…]      as /ok, but messages whose data begins with "poison" are answered with status
                                    KIND, or not at all if KIND is "hang"
    GET  /control/LANE              what has arrived at /ok/LANE (and below) so far, as JSON
    GET  /control/LANE/delays       the same with every delay
    GET  /control/LANE/forget       the same, and from then on as if nothing had arrived
    GET  /control/LANE/down         the same; from then on /poison-KIND answers 503 to everything
    GET  /control/LANE/up           the same; from then on it works again

A message whose data begins with a number (a time of CLOCK_MONOTONIC in nanoseconds) and a space is counted with its
delay, from that time to its arrival.
"""

import array
import asyncio
import base64
import json
import re
import signal
import time
from dataclasses import dataclass, field
from typing import cast

import httptools
import uvloop

_NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
_DATA = re.compile(rb'"data": ?"([A-Za-z0-9+/=_-]{24,})"')
_MESSAGE_ID = re.compile(rb'"messageId": ?"([^"]+)"')
_POISON = base64.b64encode(b"poison").rstrip(b"=")  # six bytes are eight characters
_STAMP_CHARACTERS = 32  # of base64 that hold the time


@dataclass(slots=True)
class Lane:
    """What has arrived."""

    count: int = 0
    first: float = 0.0
    last: float = 0.0
    seen: set[bytes] = field(default_factory=set)
    delays: "array.array[float]" = field(default_factory=lambda: array.array("d"))
    rejected: "array.array[float]" = field(default_factory=lambda: array.array("d"))  # when
    is_down: bool = False

    def note(self, number: bytes, body: bytes) -> None:
        now = time.monotonic()
        self.first = self.first or now
        self.last = now
        self.count += 1
        found = _MESSAGE_ID.search(body)
        self.seen.add(number + b" " + found[1] if found else number)
        if data := _DATA.search(body):
            sent, space, _ = base64.b64decode(data[1][:_STAMP_CHARACTERS]).partition(b" ")
            if space and sent.isdigit():
                self.delays.append(now - int(sent) / 1e9)

    def report(self, delays: bool) -> bytes:
        attribution: dict[str, object] = {
            "count": self.count,
            "distinct": len(self.seen),
            "first": self.first,
            "last": self.last,
        }
        attribution |= {"rejected": self.rejected.tolist(), "delays": self.delays.tolist() if delays else []}
        return json.dumps(attribution).encode()


class Sink(asyncio.Protocol):
    """One connection; answers in the order of the requests, as nothing waits but what hangs."""

    def __init__(self, lanes: dict[bytes, Lane]) -> None:
        self._lanes = lanes
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        _, does, lane, *rest = self._url.split(b"/", 3)
        number, body = rest[0] if rest else b"", b"".join(self._body)
        self._body.clear()
        if does == b"ok":
            self._lane(lane).note(number, body)
            self._transport.write(_NO_CONTENT)
        elif does.startswith(b"poison-"):
            self._answer(does.removeprefix(b"poison-"), self._lane(lane), number, body)
        elif does == b"control":
            report = self._lane(lane).report(number == b"delays")
            if number in (b"down", b"up"):
                self._lane(lane).is_down = number == b"down"
            if number == b"forget":
                del self._lanes[lane]
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(report)}\r\n\r\n"
            self._transport.write(head.encode() + report)

    def _answer(self, kind: bytes, lane: Lane, number: bytes, body: bytes) -> None:
        if not lane.is_down and (b'"' + _POISON) not in body:
            lane.note(number, body)
            self._transport.write(_NO_CONTENT)
            return
        lane.rejected.append(time.monotonic())
        status = b"503" if lane.is_down else kind
        if status != b"hang":
            self._transport.write(b"HTTP/1.1 %b Rejected\r\nContent-Length: 0\r\n\r\n" % status)

    def _lane(self, name: bytes) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane()
        return lane


async def _serve() -> None:
    loop, lanes, stop = asyncio.get_running_loop(), dict[bytes, Lane](), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(lambda: Sink(lanes), "127.0.0.1", 0, backlog=4096)
    host, port = server.sockets[0].getsockname()
    print(f"Ready: http://{host}:{port}", flush=True)
    await stop.wait()


if __name__ == "__main__":
    uvloop.run(_serve())
