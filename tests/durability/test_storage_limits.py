"""Storage limits under load, on a small file system that is filled and freed three times: nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.processes import faults
from tests.faults.disk import can_mount
from tests.faults.machine_faults import begin_another_file
from tests.faults.world import World
from tests.fixtures.broker import NO_TLS, Json, Rest, eventually, message

_BODY = "x" * 20_000
_MIN_FREE = 600_000_000  # of 900 MB, of which a new database takes less than 100
_MAX_SIZE = "120MB"
_TIMES = 3
_SECONDS = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(400)]


class Load:
    """Publishers and a consumer that never stop; what was answered, what was received, what was refused."""

    def __init__(self, rests: list[Rest]) -> None:
        self.rests = rests
        self.consumes = asyncio.Event()
        self.published: set[str] = set()
        self.received: set[str] = set()
        self.refused: set[tuple[int, str]] = set()
        self.outcomes: list[int] = []  # of publishes, since this was cleared

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.consumes.set()
        tasks = [
            asyncio.create_task(work) for rest in self.rests for work in (self._publish(rest), self._consume(rest))
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(result, asyncio.CancelledError), result

    async def _publish(self, rest: Rest) -> None:
        while True:
            body = {"messages": [message(_BODY)]}
            answer = await rest.call("POST", f"{rest.topic()}:publish", body)
            self.outcomes.append(answer.status_code)
            if answer.status_code == 200:
                self.published.update(answer.json()["messageIds"])
                await asyncio.sleep(0.01)  # about 2 MB a second, or the load would fill the disk by itself
            else:
                self.refused.add((answer.status_code, answer.json()["error"]["message"]))
                await asyncio.sleep(0.05)

    async def _consume(self, rest: Rest) -> None:
        while True:
            await self.consumes.wait()
            answer = await rest.call("POST", f"{rest.subscription()}:pull", {"maxMessages": 50})
            found: list[Json] = answer.json().get("receivedMessages", [])
            if found:
                body = {"ackIds": [each["ackId"] for each in found]}
                if (await rest.call("POST", f"{rest.subscription()}:acknowledge", body)).status_code == 200:
                    self.received.update(each["message"]["messageId"] for each in found)
            else:
                await asyncio.sleep(0.1)

    async def until(self, wanted: Callable[[list[int]], bool]) -> None:
        """The outcomes of publishes from now on are as wanted."""
        self.outcomes.clear()
        await eventually(lambda: wanted(self.outcomes), seconds=_SECONDS)

    async def until_refused(self) -> None:
        await self.until(lambda outcomes: len(outcomes) > 10 and set(outcomes[-10:]) == {429})

    async def until_accepted(self) -> None:
        await self.until(lambda outcomes: len(outcomes) > 10 and set(outcomes[-10:]) == {200})

    async def until_some_are_received(self) -> None:
        """Pulls and acks go on."""
        count = len(self.received)
        await eventually(lambda: len(self.received) > count, seconds=_SECONDS)

    async def until_all_are_received(self) -> None:
        await eventually(lambda: self.published <= self.received, seconds=_SECONDS)


@asynccontextmanager
async def _loaded(world: World) -> AsyncIterator[Load]:
    rests = []
    async with world.running():
        for broker in world.brokers:
            rest = Rest(httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS), "projects/full")
            rests.append(rest)
        try:
            await rests[0].create_topic()
            await rests[0].create_subscription(ackDeadlineSeconds=10)
            load = Load(rests)
            async with load.running():
                await load.until_accepted()
                yield load
        finally:
            for rest in rests:
                await rest.client.aclose()


def _lines(world: World, *words: str) -> list[str]:
    log = [line for broker in world.brokers for line in broker.log]
    return [line for line in log if all(word in line for word in words)]


async def test_below_the_limit_of_an_embedded_database_publishing_pauses_and_all_else_goes_on(
    tmp_path: Path,
) -> None:
    if not can_mount():
        pytest.skip("no file system can be mounted here")
    options = ["--disk-free-min", str(_MIN_FREE)]
    world = World(tmp_path / "data", disk=True, options=options)
    async with _loaded(world) as load:
        assert world.disk is not None
        for times in range(1, _TIMES + 1):
            load.consumes.clear()
            await load.until_accepted()
            await asyncio.to_thread(world.disk.take_all_but, _MIN_FREE - 50_000_000)
            await load.until_refused()
            load.consumes.set()
            await load.until_some_are_received()
            await load.until_all_are_received()
            await load.until_refused()
            await asyncio.to_thread(world.disk.give_back)
            await load.until_accepted()
            assert len(_lines(world, "WARNING main[", "publishing is paused", "--disk-free-min")) == times
            assert len(_lines(world, "INFO main[", "publishing is resumed")) == times
        assert _lines(world, "database is away") == []
        assert {status for status, _ in load.refused} == {429}
        for _, why in load.refused:
            assert "the limit is 600 MB (--disk-free-min" in why
        await load.until_all_are_received()
        assert faults(world.brokers[0]) == []


async def test_a_disk_that_others_fill_altogether_is_told_as_the_reason_and_all_goes_on_when_it_is_freed(
    tmp_path: Path,
) -> None:
    if not can_mount():
        pytest.skip("no file system can be mounted here")
    world = World(tmp_path / "data", disk=True, options=["--disk-free-min", "100MB"])
    async with _loaded(world) as load:
        assert world.disk is not None
        for _ in range(_TIMES):
            await asyncio.to_thread(world.disk.take_all_but, 0)
            await load.until_refused()
            await begin_another_file(world)
            await load.until_refused()
            await asyncio.to_thread(world.disk.give_back)
            await world.until_ready()
            await load.until_accepted()
        reasons = _lines(world, "WARNING main[", "the embedded PostgreSQL")
        assert all("No space left on device" in line or "is full" in line for line in reasons), reasons
        assert len(_lines(world, "WARNING main[", "publishing is paused", "MB are free")) >= _TIMES
        await load.until_all_are_received()


async def test_above_the_limit_of_an_own_database_all_brokers_pause_publishing(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("no file system can be mounted here")
    world = World(tmp_path / "data", brokers=2, disk=True, options=["--database-size-max", _MAX_SIZE])
    async with _loaded(world) as load:
        for times in range(1, _TIMES + 1):
            async with world.session() as session:
                await session.execute("CREATE TABLE broker.ballast (body text)")
                await session.execute("ALTER TABLE broker.ballast ALTER body SET STORAGE EXTERNAL")
                await session.execute(
                    "INSERT INTO broker.ballast SELECT repeat('x', 1000000) FROM generate_series(1, 130)"
                )
                await load.until_refused()
                await load.until_all_are_received()
                await load.until_refused()
                await session.execute("DROP TABLE broker.ballast")
            await load.until_accepted()
            for broker in world.brokers:
                said = [line for line in broker.log if "publishing is paused: the broker's tables take" in line]
                assert len(said) == times
        assert {status for status, _ in load.refused} == {429}
        assert all("the limit is 120 MB (--database-size-max" in why for _, why in load.refused)
        await load.until_all_are_received()
        assert [fault for broker in world.brokers for fault in faults(broker)] == []
