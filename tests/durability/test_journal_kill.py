"""kill -9 just before the commit of what the journal tells, and between that commit and its answer: either both are
there, what happened and what is told, or neither (F3).

Four things happen at once, each in a project of its own: a hand-out, an ack, a nack, a dead letter.  A relay before
PostgreSQL holds all of them at the same moment.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import httpx
import psycopg
import pytest

from broker.db.embedded.cluster import Cluster
from broker.db.embedded.roles import ROLE, SUPERUSER
from tests.fixtures.broker import NO_TLS, PATIENCE_SECONDS, BrokerProcess, Rest, eventually
from tests.fixtures.relay import relayed

StartBroker = Callable[..., BrokerProcess]

_OWN_TRANSACTION = {"PYTHONPATH": str(Path(__file__).parent / "own_transaction")}
_EVENTS = (b"HANDED_OUT", b"ACKED", b"NACKED", b"DEAD_LETTERED")
_COMMITTED = b"Z\0\0\0\x05I"  # the end of an answer, when no transaction is open

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(120)]


class Moment:
    """Holds each transaction that tells of one of the events, once it is told to."""

    def __init__(self, when: Literal["before", "after"]) -> None:
        """`when`: before what is told is sent, or after it was committed."""
        self._when = when
        self._held = asyncio.Condition()
        self._count = 0
        self._reporting: set[object] = set()
        self._over = asyncio.Event()
        self.armed = False

    async def __call__(self, session: object, way: str, data: bytes) -> None:
        if not self.armed or self._over.is_set():
            return
        if way == "in" and b"insert_journal" in data and any(event in data for event in _EVENTS):
            self._reporting.add(session)
            if self._when == "before":
                await self._hold()
        elif way == "out" and self._when == "after" and session in self._reporting and data.endswith(_COMMITTED):
            await self._hold()

    async def _hold(self) -> None:
        async with self._held:
            self._count += 1
            self._held.notify_all()
        await self._over.wait()
        raise ConnectionResetError

    async def until_held(self, count: int) -> None:
        async with self._held, asyncio.timeout(PATIENCE_SECONDS):
            await self._held.wait_for(lambda: self._count >= count)

    def drop(self) -> None:
        """What is held never arrives, and whatever comes passes."""
        self._over.set()


class Scene:
    """A broker behind a relay, and what is asked of it."""

    def __init__(self, broker: BrokerProcess, client: httpx.AsyncClient, cluster: Cluster, moment: Moment) -> None:
        self.broker, self._cluster, self._moment = broker, cluster, moment
        self.handed, self.acked, self.nacked, self.dead = (
            Rest(client, f"projects/{name}") for name in ("handed", "acked", "nacked", "dead")
        )
        self._calls: list[asyncio.Task[Any]] = []
        self.received: dict[str, Any] = {}

    async def begin(self) -> None:
        """All four are held."""
        journal = {"extensions": {"journal": {"mode": "ALL"}}}
        for rest in (self.handed, self.acked, self.nacked, self.dead):
            await rest.create_topic()
            await rest.create_topic("letters")
            policy = {"deadLetterTopic": rest.topic("letters"), "maxDeliveryAttempts": 5}
            await rest.create_subscription(deadLetterPolicy=policy, ackDeadlineSeconds=60, **journal)
            await rest.publish("1")
            if rest is not self.handed:
                self.received[rest.project] = await rest.pull()
        self._moment.armed = True
        ids = {"ackIds": [self.received[self.dead.project][0]["ackId"]]}
        await self.dead.ok("POST", f"{self.dead.subscription()}:reject", ids)
        self._calls = [
            asyncio.create_task(call)
            for call in (
                self.handed.call("POST", f"{self.handed.subscription()}:pull", {"maxMessages": 10}),
                self.ack(),
                self.nack(),
            )
        ]
        await self._moment.until_held(4)

    async def ack(self) -> httpx.Response:
        ids = [message["ackId"] for message in self.received[self.acked.project]]
        return await self.acked.call("POST", f"{self.acked.subscription()}:acknowledge", {"ackIds": ids})

    async def nack(self) -> httpx.Response:
        ids = [message["ackId"] for message in self.received[self.nacked.project]]
        body = {"ackIds": ids, "ackDeadlineSeconds": 0}
        return await self.nacked.call("POST", f"{self.nacked.subscription()}:modifyAckDeadline", body)

    async def kill_the_broker(self) -> None:
        """Until PostgreSQL knows that it is gone, too."""
        await asyncio.to_thread(self.broker.kill)
        self._moment.drop()
        await asyncio.gather(*self._calls, return_exceptions=True)

        async def gone() -> bool:
            return not await self._backends()

        await eventually(gone)

    async def kill_the_backends(self) -> None:
        """All that the broker has; PostgreSQL recovers, and the broker asks for the rest again."""
        for [pid] in await self._backends():
            with suppress(ProcessLookupError):  # the first that is killed ends the others
                os.kill(pid, signal.SIGKILL)
        self._moment.drop()
        await asyncio.gather(*self._calls, return_exceptions=True)
        for again in (self.ack, self.nack):

            async def done(ask: Callable[[], Any] = again) -> bool:
                return bool((await ask()).status_code == 200)

            await eventually(done)

    async def _backends(self) -> list[Any]:
        return await self.rows("SELECT pid FROM pg_stat_activity WHERE usename = %s", ROLE)

    async def rows(self, query: str, *parameters: object) -> list[Any]:
        """From the database itself, once it can be asked."""
        for _ in range(300):
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._cluster.url, user=SUPERUSER, options="-c search_path=broker", autocommit=True
                ) as connection:
                    return await (await connection.execute(query, parameters)).fetchall()
            except psycopg.OperationalError:
                await asyncio.sleep(0.1)
        raise AssertionError

    async def reported(self, rest: Rest, event: str) -> int:
        query = (
            "SELECT count(*) FROM delivery_journal JOIN subscriptions USING (subscription_id)"
            " WHERE name = %s AND event = %s"
        )
        [[count]] = await self.rows(query, rest.subscription(), event)
        return int(count)

    async def attempts(self, rest: Rest) -> list[tuple[int, str, bool]]:
        """Number and status of what is out, and whether any of it is not acked."""
        query = (
            "SELECT attempt_number, status, bit_count(open) > 0 FROM delivery_attempts"
            " JOIN subscriptions USING (subscription_id) WHERE name = %s"
        )
        return await self.rows(query, rest.subscription())

    async def dead_letters(self) -> int:
        """That were published."""
        [[count]] = await self.rows(
            "SELECT coalesce(sum(head), 0)::int FROM shards JOIN topics USING (topic_id) WHERE name = %s",
            self.dead.topic("letters"),
        )
        return int(count)


@pytest.fixture
def scene(start_broker: StartBroker, data_dir: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def begun(when: Literal["before", "after"], env: dict[str, str] | None = None) -> AsyncIterator[Scene]:
        cluster, moment = Cluster(data_dir), Moment(when)
        cluster.open()
        try:
            async with relayed(cluster.url) as relay:
                relay.passing = moment
                broker = await asyncio.to_thread(start_broker, "--database-url", relay.url, "--port", "0", env=env)
                async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
                    scene = Scene(broker, client, cluster, moment)
                    await scene.begin()
                    yield scene
                await asyncio.to_thread(broker.stop)
        finally:
            cluster.close()

    return begun


async def _both_or_neither(scene: Scene, *, happened: bool) -> None:
    assert await scene.attempts(scene.handed) == ([(1, "delivering", True)] if happened else [])
    assert await scene.reported(scene.handed, "HANDED_OUT") == happened
    assert any(left for _, _, left in await scene.attempts(scene.acked)) != happened
    assert await scene.reported(scene.acked, "ACKED") == happened
    assert [status for _, status, _ in await scene.attempts(scene.nacked)] == [
        "nacked" if happened else "delivering"
    ]
    assert await scene.reported(scene.nacked, "NACKED") == happened
    assert await scene.dead_letters() == happened
    assert await scene.reported(scene.dead, "DEAD_LETTERED") == happened


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_broker_that_is_killed_at_a_commit_leaves_what_happened_and_what_is_told_or_neither(
    scene: Callable[..., Any], when: str
) -> None:
    async with scene(when) as begun:
        await begun.kill_the_broker()
        await _both_or_neither(begun, happened=when == "after")


async def _told_once(scene: Scene, *, was_made: bool) -> None:
    """`was_made`: the first tries had committed, though nobody was told."""
    [(number, _, _)] = await scene.attempts(scene.handed) or [(0, "", False)]
    assert await scene.reported(scene.handed, "HANDED_OUT") == number >= was_made
    assert not any(left for _, _, left in await scene.attempts(scene.acked))
    assert await scene.reported(scene.acked, "ACKED") == 1
    assert [status for _, status, _ in await scene.attempts(scene.nacked)] == ["nacked"]
    assert await scene.reported(scene.nacked, "NACKED") >= 1

    async def forwarded() -> bool:
        return await scene.dead_letters() > 0

    await eventually(forwarded)
    assert (await scene.dead_letters(), await scene.reported(scene.dead, "DEAD_LETTERED")) == (1, 1)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_backends_that_are_killed_at_a_commit_leave_each_thing_told_once_when_it_was_asked_for_again(
    scene: Callable[..., Any], when: str
) -> None:
    async with scene(when) as begun:
        await begun.kill_the_backends()
        await _told_once(begun, was_made=when == "after")


async def test_a_journal_that_is_written_in_a_transaction_of_its_own_is_found_out(
    scene: Callable[..., Any],
) -> None:
    async with scene("before", _OWN_TRANSACTION) as begun:
        await begun.kill_the_broker()
        for happened in (True, False):
            with pytest.raises(AssertionError):
                await _both_or_neither(begun, happened=happened)
        for rest, event in ((begun.handed, "HANDED_OUT"), (begun.acked, "ACKED"), (begun.nacked, "NACKED")):
            assert await begun.reported(rest, event) == 0
        assert (await begun.dead_letters(), await begun.reported(begun.dead, "DEAD_LETTERED")) == (1, 0)
        assert len(await begun.attempts(begun.handed)) == 1
        assert not any(left for _, _, left in await begun.attempts(begun.acked))
        assert [status for _, status, _ in await begun.attempts(begun.nacked)] == ["nacked"]
