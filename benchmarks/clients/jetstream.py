"""NATS JetStream through nats-py: a stream in files, a durable pull consumer for each subscription."""

import asyncio
from collections.abc import Sequence

import nats
import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from benchmarks.clients.client import ANSWER_SECONDS, Client

_MOST_OUT = 10_000  # messages delivered and not acked; well above what the consumers fetch
_WAIT_SECONDS = 0.3  # of a fetch that finds too little
_ACK_WAIT_SECONDS = 600


class JetStreamClient(Client):
    """Messages published together are separate publishes whose answers are awaited together.

    With `sync_interval: always` the answer to a publish follows an fsync.  Acks have no answer unless one is asked
    for (`ack_sync`), which is done with the last of each fetch: the server deals with them in order.  That answer
    says that the ack is known, not that it is on the disk: a consumer's state is written afterwards, at most
    ten times a second.
    """

    errors = (nats.errors.Error,)
    keeps_messages = True
    fills_batches = True

    async def open(self) -> None:
        self._connection = await nats.connect(
            f"nats://{self._host}:{self._port}", connect_timeout=int(ANSWER_SECONDS)
        )
        self._jetstream = self._connection.jetstream(timeout=ANSWER_SECONDS)

    async def create_topic(self) -> None:
        await self._jetstream.add_stream(
            StreamConfig(
                name=self._topic,
                subjects=[self._topic],
                storage=StorageType.FILE,
                retention=RetentionPolicy.LIMITS,
                num_replicas=1,
            )
        )

    async def create_subscription(self, name: str, consumers: int) -> None:
        # One ack for all before it is what costs least, and is possible where nobody else takes part.
        policy = AckPolicy.ALL if consumers == 1 else AckPolicy.EXPLICIT
        await self._jetstream.add_consumer(
            self._topic,
            ConsumerConfig(
                durable_name=name, ack_policy=policy, max_ack_pending=_MOST_OUT, ack_wait=_ACK_WAIT_SECONDS
            ),
        )

    async def delete_topic(self) -> None:
        await self._jetstream.delete_stream(self._topic)

    async def publish(self, bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            await self._jetstream.publish(self._topic, bodies[0])
            return
        answers = [await self._jetstream.publish_async(self._topic, body) for body in bodies]
        await asyncio.gather(*answers)

    async def subscribe(self, name: str) -> None:
        self._pulls = await self._jetstream.pull_subscribe_bind(consumer=name, stream=self._topic)
        self._each_is_acked = (await self._pulls.consumer_info()).config.ack_policy == AckPolicy.EXPLICIT

    async def receive(self, most: int) -> int:
        try:
            messages = await self._pulls.fetch(most, timeout=_WAIT_SECONDS)
        except nats.errors.TimeoutError:
            return 0
        if self._each_is_acked:
            for message in messages[:-1]:
                await message.ack()
        await messages[-1].ack_sync()
        return len(messages)

    async def close(self) -> None:
        await self._connection.close()
