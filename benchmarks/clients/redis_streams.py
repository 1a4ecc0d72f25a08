"""Redis Streams through redis-py (with hiredis) on asyncio: a stream, a consumer group for each subscription."""

import uuid
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from benchmarks.clients.client import ANSWER_SECONDS, Client

_FIELD = b"data"


class RedisStreamsClient(Client):
    """Messages published together are one pipeline of XADD, without MULTI.

    With `appendfsync always` an fsync of the append-only file precedes every answer, to XADD, to XREADGROUP (the
    delivery is written down as well) and to XACK.  An ack does not remove a message: streams are trimmed by length.
    """

    errors = (RedisError,)
    keeps_messages = True
    fills_batches = True

    async def open(self) -> None:
        # As many connections as there are requests at once: the client has no other way to send them together.
        self._redis = Redis(host=self._host, port=self._port, socket_timeout=ANSWER_SECONDS)
        self._group = ""
        self._consumer = uuid.uuid4().hex
        await self._redis.ping()

    async def create_topic(self) -> None:
        """XADD makes it."""

    async def create_subscription(self, name: str, consumers: int) -> None:
        await self._redis.xgroup_create(self._topic, name, id="0", mkstream=True)

    async def delete_topic(self) -> None:
        await self._redis.delete(self._topic)

    async def publish(self, bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            await self._redis.xadd(self._topic, {_FIELD: bodies[0]})
            return
        pipeline = self._redis.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(self._topic, {_FIELD: body})
        await pipeline.execute()

    async def subscribe(self, name: str) -> None:
        self._group = name

    async def receive(self, most: int) -> int:
        answer: Any = await self._redis.xreadgroup(self._group, self._consumer, {self._topic: ">"}, count=most)
        if not answer:
            return 0
        [[_, entries]] = answer
        ids = [entry_id for entry_id, _ in entries]
        await self._redis.xack(self._topic, self._group, *ids)
        return len(ids)

    async def close(self) -> None:
        await self._redis.aclose()
