"""RabbitMQ through pika on asyncio: a quorum queue, publisher confirms, acks of many at once.

aio-pika, which is easier to use, was 1.5 times slower in publishing and in consuming on the machine of
docs/benchmarks.md.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pika import BasicProperties, ConnectionParameters
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel
from pika.exceptions import AMQPError
from pika.frame import Method
from pika.spec import Basic

from benchmarks.clients.client import ANSWER_SECONDS, Client

_QUORUM = {"x-queue-type": "quorum"}
_PERSISTENT = BasicProperties(delivery_mode=2)
_PREFETCH = 2_000  # twice what is acked at once, so that the server need not wait for the ack
_CLOSE_SECONDS = 5.0
_WAIT_SECONDS = 0.3  # for as many messages as asked


@dataclass(slots=True)
class _Publish:
    """Messages published together, and how many of them are not confirmed yet."""

    unconfirmed: int
    done: asyncio.Future[None]


class RabbitMqClient(Client):
    """One connection with one channel.  The queue is the topic and its one subscription; consuming empties it.

    A quorum queue confirms once the message is in its log and an fsync has followed.  Acks go through the same
    log, but have no answer; settle() makes a round trip behind them.
    """

    errors = (AMQPError,)
    keeps_messages = False
    fills_batches = True

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._next_tag, self._first_unconfirmed = 1, 1
        self._publishes: dict[int, _Publish] = {}  # by delivery tag
        self._delivered: list[int] = []  # delivery tags that were not yet acked
        self._wanted = 0
        self._enough = asyncio.Event()
        parameters = ConnectionParameters(
            self._host, self._port, socket_timeout=ANSWER_SECONDS, stack_timeout=ANSWER_SECONDS
        )
        self._connection: AsyncioConnection = await self._answer(
            lambda answer: AsyncioConnection(
                parameters,
                on_open_callback=answer,
                on_open_error_callback=lambda _, reason: self._fail(reason),
                on_close_callback=self._on_close,
                custom_ioloop=self._loop,
            )
        )
        self._channel: Channel = await self._answer(
            lambda answer: self._connection.channel(on_open_callback=answer)
        )
        self._channel.add_on_close_callback(lambda _, reason: self._fail(reason))
        await self._answer(lambda answer: self._channel.confirm_delivery(self._on_confirm, callback=answer))

    async def create_topic(self) -> None:
        await self._answer(
            lambda answer: self._channel.queue_declare(
                self._topic, durable=True, arguments=_QUORUM, callback=answer
            )
        )

    async def create_subscription(self, name: str, consumers: int) -> None:
        """The queue is one."""

    async def delete_topic(self) -> None:
        await self._answer(lambda answer: self._channel.queue_delete(self._topic, callback=answer))

    async def publish(self, bodies: Sequence[bytes]) -> None:
        publish = _Publish(len(bodies), self._loop.create_future())
        for body in bodies:
            self._publishes[self._next_tag] = publish
            self._next_tag += 1
            self._channel.basic_publish("", self._topic, body, _PERSISTENT)
        await self._or_failure(publish.done)

    async def subscribe(self, name: str) -> None:
        await self._answer(lambda answer: self._channel.basic_qos(prefetch_count=_PREFETCH, callback=answer))

    async def receive(self, most: int) -> int:
        if not self._channel.consumer_tags:  # only now: what is sent before the start would be measured as free
            await self._answer(
                lambda answer: self._channel.basic_consume(self._topic, self._on_message, callback=answer)
            )
        self._wanted = most
        self._enough.clear()
        if len(self._delivered) < most:
            try:
                async with asyncio.timeout(_WAIT_SECONDS):
                    await self._enough.wait()
            except TimeoutError:
                if self._failed.done():
                    self._failed.result()
        taken, self._delivered = self._delivered[:most], self._delivered[most:]
        if taken:
            self._channel.basic_ack(taken[-1], multiple=True)
        return len(taken)

    async def settle(self) -> None:
        await self._answer(lambda answer: self._channel.queue_declare(self._topic, passive=True, callback=answer))

    async def close(self) -> None:
        self._connection.close()
        await asyncio.wait((self._closed,), timeout=_CLOSE_SECONDS)
        self._failed.cancel() or self._failed.exception()  # the end was ours

    def _on_confirm(self, frame: "Method[Basic.Ack | Basic.Nack]") -> None:
        last = frame.method.delivery_tag
        if isinstance(frame.method, Basic.Nack):
            self._fail(AMQPError(f"message {last} was refused"))
            return
        first = self._first_unconfirmed if frame.method.multiple else last
        for tag in range(first, last + 1):
            if publish := self._publishes.pop(tag, None):
                publish.unconfirmed -= 1
                if not publish.unconfirmed:
                    publish.done.set_result(None)
        if frame.method.multiple:
            self._first_unconfirmed = last + 1

    def _on_message(self, _: Channel, method: Basic.Deliver, __: BasicProperties, ___: bytes) -> None:
        self._delivered.append(method.delivery_tag)
        if len(self._delivered) >= self._wanted:
            self._enough.set()

    def _on_close(self, _: AsyncioConnection, reason: BaseException) -> None:
        self._fail(reason)
        self._closed.set_result(None)

    def _fail(self, reason: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(reason)

    async def _answer(self, ask: Callable[[Callable[[Any], None]], object]) -> Any:
        """What the server's answer gives to the callback."""
        answered: asyncio.Future[Any] = self._loop.create_future()
        ask(answered.set_result)
        return await self._or_failure(answered)

    async def _or_failure(self, future: "asyncio.Future[Any]") -> Any:
        await asyncio.wait((future, self._failed), return_when=asyncio.FIRST_COMPLETED)
        return future.result() if future.done() else self._failed.result()
