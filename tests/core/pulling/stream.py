"""Streams of Subscriber.StreamingPull, as gRPC's own client library holds them, with signals to wait for."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from grpc import aio

from broker.api.generated.messages import StreamingPullRequest, StreamingPullResponse
from tests.fixtures.broker import PATIENCE_SECONDS, Json, Rest

PATH = "/google.pubsub.v1.Subscriber/StreamingPull"
A_WHILE = 0.2  # seconds in which what should not happen would show
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


@dataclass(frozen=True, slots=True)
class Received:
    """A message as it came; `at` is the time of the event loop then."""

    ack_id: str
    text: str
    message_id: str
    key: str
    attempt: int
    attributes: Mapping[str, str]
    size: int  # of its data, in bytes
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How a stream ended: gRPC's name of the status, and the message."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Properties:
    exactly_once: bool
    ordered: bool


class Stream:
    """One stream.  What comes is taken in as it comes; `take` and `until` wait for it.

    `outstanding` is what was handed over and what this client has not settled through `ack` or `nack`.
    """

    def __init__(
        self,
        call: Any,
        *,
        acks_at_once: bool = False,
        on_messages: Callable[[list[Received]], None] | None = None,
    ) -> None:
        self._call = call
        self.acks_at_once = acks_at_once
        self._writing = asyncio.Lock()  # gRPC takes one message at a time
        self._changed = asyncio.Event()
        self._taken = 0
        self.received: list[Received] = []
        self.outstanding: dict[str, Received] = {}
        self.most_outstanding = 0
        self.properties: list[Properties | None] = []  # of every response
        self.empty = 0  # responses without messages and confirmations
        self.acked: list[str] = []  # as confirmed, likewise the following
        self.not_acked: list[str] = []
        self.not_acked_yet: list[str] = []
        self.modified: list[str] = []
        self.not_modified: list[str] = []
        self.on_messages = on_messages
        self.end: Ended | None = None
        self.reader = asyncio.ensure_future(self._read())

    # --- what comes --------------------------------------------------------------------------------------

    async def _read(self) -> None:
        with contextlib.suppress(aio.AioRpcError, asyncio.CancelledError):  # the call says how it ended
            async for data in self._call:
                await self._take_in(StreamingPullResponse.FromString(data))
        self.end = Ended((await self._call.code()).name, await self._call.details() or "")
        self._changed.set()

    async def _take_in(self, response: Any) -> None:
        self.properties.append(_properties(response))
        came = [_received(message) for message in response.received_messages]
        self.received += came
        if came and self.on_messages:
            self.on_messages(came)
        self.outstanding |= {message.ack_id: message for message in came}
        self.most_outstanding = max(self.most_outstanding, len(self.outstanding))
        acks, changes = response.acknowledge_confirmation, response.modify_ack_deadline_confirmation
        self.acked += acks.ack_ids
        self.not_acked += acks.invalid_ack_ids
        self.not_acked_yet += acks.unordered_ack_ids
        self.modified += changes.ack_ids
        self.not_modified += changes.invalid_ack_ids
        confirms = response.HasField("acknowledge_confirmation") or response.HasField(
            "modify_ack_deadline_confirmation"
        )
        self.empty += not came and not confirms
        self._changed.set()
        if came and self.acks_at_once:
            with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):  # it may have ended meanwhile
                await self.ack(came)

    async def until(self, condition: Callable[[], Any], *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for something that comes on this stream."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    assert self.end is None, self.end
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"it did not come; there were {[m.text for m in self.received][:50]}") from None

    async def take(self, count: int = 1, *, seconds: float = PATIENCE_SECONDS) -> list[Received]:
        """The next messages, once there are `count`, and no others that came."""
        await self.until(lambda: len(self.received) >= self._taken + count, seconds=seconds)
        taken = self.received[self._taken : self._taken + count]
        self._taken += count
        return taken

    async def take_texts(self, count: int = 1, *, seconds: float = PATIENCE_SECONDS) -> list[str]:
        return [message.text for message in await self.take(count, seconds=seconds)]

    async def has_no_more(self, *, seconds: float = A_WHILE) -> None:
        """Nothing but what was taken comes in a while, and the stream stays open."""
        await asyncio.sleep(seconds)
        assert [message.text for message in self.received[self._taken :]] == []
        assert self.end is None, self.end

    async def ended(self, *, seconds: float = PATIENCE_SECONDS) -> Ended:
        async with asyncio.timeout(seconds):
            await asyncio.shield(self.reader)
        assert self.end is not None
        return self.end

    # --- what goes ---------------------------------------------------------------------------------------

    async def send(self, raw: bytes | None = None, **fields: Any) -> None:
        """A request; without fields, a heartbeat."""
        request = StreamingPullRequest(**fields).SerializeToString() if raw is None else raw
        async with self._writing:
            await self._call.write(request)

    async def ack(self, messages: Iterable[Received]) -> None:
        await self.send(ack_ids=self._settle(messages))

    async def nack(self, messages: Iterable[Received]) -> None:
        ack_ids = self._settle(messages)
        await self.modify(ack_ids, 0)

    async def modify(self, ack_ids: Iterable[str | Received], seconds: int) -> None:
        ids = [entry if isinstance(entry, str) else entry.ack_id for entry in ack_ids]
        await self.send(modify_deadline_ack_ids=ids, modify_deadline_seconds=[seconds] * len(ids))

    def _settle(self, messages: Iterable[Received]) -> list[str]:
        ack_ids = [message.ack_id for message in messages]
        for ack_id in ack_ids:
            self.outstanding.pop(ack_id, None)
        return ack_ids

    async def round_trip(self) -> None:
        """A heartbeat and its answer: the broker has read all that was sent before (protocol version 1)."""
        wanted = self.empty + 1
        await self.send()
        await self.until(lambda: self.empty >= wanted)

    async def half_close(self) -> None:
        await self._call.done_writing()

    def cancel(self) -> None:
        self._call.cancel()

    async def close(self) -> None:
        self._call.cancel()
        await asyncio.wait([self.reader])


def _received(message: Any) -> Received:
    body = message.message
    return Received(
        ack_id=message.ack_id,
        text=body.data[:100].decode(),
        message_id=body.message_id,
        key=body.ordering_key,
        attempt=message.delivery_attempt,
        attributes=dict(body.attributes),
        size=len(body.data),
        at=asyncio.get_running_loop().time(),
    )


def _properties(response: Any) -> Properties | None:
    if not response.HasField("subscription_properties"):
        return None
    found = response.subscription_properties
    return Properties(found.exactly_once_delivery_enabled, found.message_ordering_enabled)


class Streams:
    """Opens streams on the subscriptions of one project, and closes them all.

    Short names ("sub") as in Rest, which is here too.
    """

    def __init__(self, url: str, rest: Rest) -> None:
        self.rest = rest
        self._address = urlsplit(url).netloc
        self._channels: dict[int, aio.Channel] = {}
        self._opened: list[Stream] = []

    def _channel(self, connection: int) -> aio.Channel:
        if connection not in self._channels:
            self._channels[connection] = aio.insecure_channel(self._address, options=_OPTIONS)
        return self._channels[connection]

    def call(self, connection: int = 0, deadline: float | None = None) -> Any:
        """A call without any request yet."""
        return self._channel(connection).stream_stream(PATH)(timeout=deadline)

    async def open(
        self,
        name: str = "sub",
        *,
        connection: int = 0,
        call_deadline: float | None = None,
        acks_at_once: bool = False,
        on_messages: Callable[[list[Received]], None] | None = None,
        **fields: Any,
    ) -> Stream:
        """A stream with protocol version 1 and a deadline of a minute, if the fields of its first request do not
        say otherwise (None: leave it out).  `connection` is the number of one; different ones are not shared.
        `call_deadline`: seconds that the call may take.
        """
        stream = Stream(self.call(connection, call_deadline), acks_at_once=acks_at_once, on_messages=on_messages)
        self._opened.append(stream)
        first: Json = {
            "subscription": self.rest.subscription(name),
            "stream_ack_deadline_seconds": 600,
            "protocol_version": 1,
        }
        first = {key: value for key, value in (first | fields).items() if value is not None}
        await stream.send(**first)
        return stream

    async def waiting(self, name: str = "sub", **options: Any) -> Stream:
        """A stream that the broker has begun to serve by the time this returns."""
        stream = await self.open(name, **options)
        await stream.round_trip()
        return stream

    async def subscribe(self, name: str = "sub", **fields: Any) -> None:
        """A subscription to the project's topic, which is made if need be."""
        created = await self.rest.call("PUT", self.rest.topic(), {})
        assert created.status_code in (200, 409), created.text
        await self.rest.create_subscription(name, **fields)

    async def update(self, mask: str, name: str = "sub", **fields: Any) -> None:
        body = {"subscription": fields, "updateMask": mask}
        await self.rest.ok("PATCH", self.rest.subscription(name), body)

    async def unacked(self, name: str = "sub") -> int:
        """Messages that are not acked, delivered or not."""
        position = await self.rest.ok("GET", f"{self.rest.subscription(name)}/snapshot")
        count: int = position["undeliveredMessages"]
        return count

    def of_all(self) -> list[Received]:
        """What came on any stream, in the order it came."""
        return sorted((m for stream in self._opened for m in stream.received), key=lambda m: m.at)

    async def delete(self) -> None:
        """All subscriptions, lest they keep a shared broker busy."""
        listed = await self.rest.ok("GET", f"{self.rest.project}/subscriptions")
        for subscription in listed.get("subscriptions", []):
            await self.rest.ok("DELETE", subscription["name"])

    async def close(self) -> None:
        await asyncio.gather(*(stream.close() for stream in self._opened))
        for channel in self._channels.values():
            await channel.close()


def numbered(count: int, first: int = 0) -> list[str]:
    return [f"m{number}" for number in range(first, first + count)]
