"""A subscriber by StreamingPull, over raw gRPC: it reads without a pause, and settles beside that."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
from google.pubsub_v1 import types

from tests.faults.checks.view import READ_LATE_SECONDS
from tests.faults.clients.lease import Handling, now
from tests.faults.clients.puller import settle
from tests.faults.clients.rest import RestCaller
from tests.faults.clients.topology import ACK_DEADLINE_SECONDS
from tests.faults.history import Delivery, History, Receive, Settle, Subscription

METHOD = "/google.pubsub.v1.Subscriber/StreamingPull"
MAX_OUTSTANDING = 60
_Request, _Response = types.StreamingPullRequest.pb(), types.StreamingPullResponse.pb()
_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
]
_PAUSE_SECONDS = 0.1
_ON_STREAM = 0.5  # the share of changes that go over the stream
_FORESEEN = {  # official clients open another stream, too
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
_DENIED = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}  # the key or the role has changed
# What the client itself says when the connection broke while it sent: no answer of a broker.
_NOT_SENT = "Internal error from Core"


class Streamer:
    """Opens a stream, and another one when that ends."""

    def __init__(
        self, name: str, subscription: Subscription, caller: RestCaller, history: History, dice: random.Random
    ) -> None:
        self._name, self._subscription = name, subscription
        self._caller, self._history, self._dice = caller, history, dice
        self.handling = Handling(dice, learns=subscription.redriven)
        self._stopping = asyncio.Event()
        self._stream: _Stream | None = None

    def stop(self) -> None:
        """Ends the stream; what was received is handled all the same."""
        self._stopping.set()

    async def run(self) -> None:
        while not self._stopping.is_set():
            target = urlsplit(self._dice.choice(list(self._caller.urls))).netloc
            async with self._channel(target) as channel:
                await self._receive(channel)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _channel(self, target: str) -> grpc.aio.Channel:
        guard = self._caller.guard
        if guard is None:
            return grpc.aio.insecure_channel(target, options=_OPTIONS)
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(guard.authority), options=_OPTIONS)

    async def _receive(self, channel: grpc.aio.Channel) -> None:
        open_stream = channel.stream_stream(
            METHOD, request_serializer=_Request.SerializeToString, response_deserializer=_Response.FromString
        )
        call = open_stream(metadata=[(name.lower(), value) for name, value in self._caller.headers().items()])
        stream = self._stream = _Stream(call)
        first = _Request(
            subscription=f"{self._caller.project}/subscriptions/{self._subscription.name}",
            stream_ack_deadline_seconds=ACK_DEADLINE_SECONDS,
            max_outstanding_messages=MAX_OUTSTANDING,
            client_id=self._name,
        )
        last_read = opened = now()
        async with asyncio.TaskGroup() as tasks:
            stopper = tasks.create_task(self._end(call))
            try:
                await call.write(first)
                while (response := await call.read()) is not grpc.aio.EOF:
                    if response.received_messages:
                        received = self._note(response, max(opened, last_read - READ_LATE_SECONDS))
                        tasks.create_task(self._handle(received, stream))
                        last_read = now()  # a confirmation says nothing of when the look for messages began
                    stream.confirm(response)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                self._check_at(error)
            except asyncio.CancelledError:  # the call is, not this task
                if not self._stopping.is_set():
                    raise
            stream.broken()
            self._note_loss(max(opened, last_read - READ_LATE_SECONDS))
            stopper.cancel()

    async def _end(self, call: Any) -> None:
        await self._stopping.wait()
        call.cancel()

    async def _handle(self, received: list[Delivery], stream: "_Stream") -> None:
        async def send(ack_ids: Sequence[str], seconds: float | None) -> Settle:
            if stream.is_broken or self._dice.random() >= _ON_STREAM:
                return await settle(self._name, self._subscription, self._caller, self._history, ack_ids, seconds)
            return await self._settle_on_stream(stream, ack_ids, seconds)

        await self.handling.handle(received, send)

    async def _settle_on_stream(self, stream: "_Stream", ack_ids: Sequence[str], seconds: float | None) -> Settle:
        settled = Settle(
            who=self._name,
            began=now(),
            ended=0.0,
            outcome="unknown",
            subscription=self._subscription.name,
            ack_ids=list(ack_ids),
            seconds=seconds,
        )
        await stream.send(settled, confirmed=self._subscription.exactly_once)
        settled.ended = now()
        self._history.add(settled)
        return settled

    def _note(self, response: Any, began: float) -> list[Delivery]:
        deliveries = [
            Delivery(
                int(item.message.message_id),
                item.message.data.decode(),
                item.ack_id,
                item.message.ordering_key,
                item.delivery_attempt or None,
                dict(item.message.attributes),
            )
            for item in response.received_messages
        ]
        self._history.add(
            Receive(
                who=self._name,
                began=began,
                ended=now(),
                subscription=self._subscription.name,
                how="stream",
                deliveries=deliveries,
            )
        )
        return deliveries

    def _note_loss(self, began: float) -> None:
        """The stream ended: what was on its way is lost."""
        self._history.add(
            Receive(
                who=self._name,
                began=began,
                ended=now(),
                outcome="unknown",
                subscription=self._subscription.name,
                how="stream",
            )
        )

    def _check_at(self, error: grpc.aio.AioRpcError | asyncio.InvalidStateError) -> None:
        code = grpc.StatusCode.CANCELLED
        if isinstance(error, grpc.aio.AioRpcError):
            code = grpc.StatusCode.UNAVAILABLE if error.details() == _NOT_SENT else error.code()
        self._caller.failures[f"stream {code.name}"] += 1
        if code not in _FORESEEN and not (self._caller.guard is not None and code in _DENIED):
            self._caller.unforeseen.append(f"stream of {self._subscription.name}: {error!r}")


class _Stream:
    """What was sent on one stream and waits to be confirmed, which only exactly-once subscriptions do."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._waiting: list[tuple[Settle, set[str], asyncio.Future[None]]] = []
        self.is_broken = False
        self._writing = asyncio.Lock()  # gRPC takes one at a time

    async def send(self, settled: Settle, *, confirmed: bool) -> None:
        """With exactly-once delivery, sets the outcome when it is confirmed or will never be."""
        request = _Request()
        if settled.seconds is None:
            request.ack_ids.extend(settled.ack_ids)
        else:
            request.modify_deadline_ack_ids.extend(settled.ack_ids)
            request.modify_deadline_seconds.extend([int(settled.seconds)] * len(settled.ack_ids))
        answered = asyncio.get_running_loop().create_future()
        if confirmed:
            self._waiting.append((settled, set(settled.ack_ids), answered))
        try:
            async with self._writing:
                await self._call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return
        if confirmed and not self.is_broken:
            await answered

    def confirm(self, response: Any) -> None:
        """What a response says about what was sent."""
        acks, deadlines = response.acknowledge_confirmation, response.modify_ack_deadline_confirmation
        self._confirm(True, acks.ack_ids, acks.invalid_ack_ids, acks.unordered_ack_ids)
        self._confirm(True, (), (), (), acks.temporary_failed_ack_ids)
        self._confirm(False, deadlines.ack_ids, deadlines.invalid_ack_ids, ())
        self._confirm(False, (), (), (), deadlines.temporary_failed_ack_ids)

    def _confirm(
        self,
        acks: bool,
        done: Sequence[str],
        invalid: Sequence[str],
        unordered: Sequence[str],
        failed: Sequence[str] = (),
    ) -> None:
        reported = {*done, *invalid, *unordered, *failed}
        for entry in list(self._waiting) if reported else ():
            settled, left, answered = entry
            if (settled.seconds is None) != acks or not left & reported:
                continue
            settled.refused |= dict.fromkeys(left & set(invalid), "invalid")
            settled.refused |= dict.fromkeys(left & set(unordered), "unordered")
            left -= reported
            if not left or failed:
                settled.outcome = "unknown" if failed else "ok"
                self._waiting.remove(entry)
                if not answered.done():
                    answered.set_result(None)
            reported -= {*settled.ack_ids}

    def broken(self) -> None:
        """Nothing more will be confirmed."""
        self.is_broken = True
        for _, _, answered in self._waiting:
            if not answered.done():
                answered.set_result(None)
        self._waiting.clear()
