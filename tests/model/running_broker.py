"""The real broker, over real HTTP, in a thread of the test's process: the test sets its time and runs its workers.

To be compared with the model step by step, nothing may happen in its own time: the clock stands still, the jitter
is fixed, the dead-letter forwarder and the janitor run when they are told to.
"""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

import httpx
import uvloop

from broker.app.asgi import serve_broker
from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.log.partitions import make_partitions_ahead
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.features.delayed.rows import find_scheduled_shards
from broker.net.first_bytes import MakeProtocol
from broker.net.uvicorn_server import UvicornServer
from tests.fixtures.broker import NO_TLS

T = TypeVar("T")

NEVER = 1_000_000.0  # seconds
PATIENCE = 5.0  # seconds that a waiting pull waits; every one here is woken long before
JITTER = 0.0625  # of every retry delay; a power of two, so that the model's sums come out the same


class SetClock(DatabaseClock):
    """Stands still at `time` until the test moves it.  Starts at the database's time, in whole milliseconds."""

    time: datetime

    async def synchronise(self) -> None:
        if not hasattr(self, "time"):
            await super().synchronise()
            now = super().now()
            self.time = now.replace(microsecond=now.microsecond // 1000 * 1000)

    def now(self) -> datetime:
        return self.time


class RunningBroker:
    """`client` and `second_client` speak to it; two calls may be under way at once."""

    def __init__(self, database_url: str, *, shards_per_topic: int = 1) -> None:
        self.single_shard = shards_per_topic == 1
        self.database_url = database_url
        self._config = AppConfig(
            database_url=database_url,
            pool_size=3,
            pull_wait_seconds=PATIENCE,
            janitor_interval_seconds=NEVER,
            dead_letter_interval_seconds=NEVER,
            shards_per_topic=shards_per_topic,
        )
        self.client: httpx.Client
        self.second_client: httpx.Client
        self._loop: asyncio.AbstractEventLoop
        self._broker: Broker
        self._database: Database
        self._clock: SetClock
        self._ready = threading.Event()

    @contextmanager
    def running(self) -> Iterator["RunningBroker"]:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            url = "http://{}:{}".format(*listener.getsockname())
            thread = threading.Thread(target=self._serve, args=(listener,), name="broker")
            thread.start()
            try:
                assert self._ready.wait(30)
                assert self._server.started
                with (
                    httpx.Client(base_url=url, timeout=60, verify=NO_TLS) as first,
                    httpx.Client(base_url=url, timeout=60, verify=NO_TLS) as second,
                ):
                    self.client, self.second_client = first, second
                    yield self
            finally:
                self._server.should_exit = True
                thread.join(30)

    def _serve(self, listener: socket.socket) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._broker = Broker(self._config, make_clock=self._make_clock, jitter=lambda: JITTER)
            make_protocol = MakeProtocol(most_connections=100)
            self._server = UvicornServer(serve_broker(self._broker), make_protocol, serving=self._ready.set)
            await self._server.serve([listener])

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())
        finally:
            self._ready.set()

    def _make_clock(self, database: Database) -> SetClock:
        self._database, self._clock = database, SetClock(database)
        return self._clock

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    # --- what a real process does in its own time -------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self._clock.time

    def move_time(self, delta: timedelta) -> None:
        """Time passes; waiting pulls look again, as their alarms would make them do."""
        if delta > timedelta(minutes=1):
            self._run(self._make_partitions(self.now + delta))
        self._clock.time += delta
        self._run(self._publish_due())
        self._loop.call_soon_threadsafe(self._broker.claiming.wake, None, None)

    async def _make_partitions(self, now: datetime) -> None:
        async with self._database.connection() as connection:
            await make_partitions_ahead(connection, now=now)

    async def _publish_due(self) -> None:
        """All that is due, by this or by the broker's own worker, whoever comes first."""
        while True:
            await self._broker.workers["due messages"].run_once()
            async with self._database.hot() as connection:
                waiting = await find_scheduled_shards(connection)
            if all(shard.due_at > self.now for shard in waiting):
                return
            await asyncio.sleep(0.005)

    def tick(self) -> None:
        """All ticks that are due, by this or by the broker's own worker, whoever comes first."""
        self._run(self._tick())

    async def _tick(self) -> None:
        while True:
            await self._broker.workers["schedules"].run_once()
            first = await self._broker.workers["schedules"].ticker.next_at()
            if first is None or first > self.now:
                return
            await asyncio.sleep(0.005)

    def relay(self) -> None:
        """All that applications have committed, by this or by the broker's own worker, whoever comes first."""
        self._run(self._relay())

    async def _relay(self) -> None:
        while True:
            await self._broker.workers["relay"].relay.run_once()
            async with self._database.connection() as connection:
                cursor = await connection.execute(b"SELECT FROM outbox LIMIT 1")
                if await cursor.fetchone() is None:
                    return
            await asyncio.sleep(0.005)

    def forward_dead_letters(self) -> int:
        return self._run(self._broker.workers["dead-letter forwarder"].run_once())

    def tidy(self) -> None:
        self._run(self._broker.jobs.janitor.run_once())
