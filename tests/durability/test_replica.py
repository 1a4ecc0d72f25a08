"""Calls that look read a standby, and nobody sees less than he was told before (L2)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.db.schema import migrations
from broker.features.inspect.fleet.database_checks import inspect_replica_of
from broker.observability.metrics.families import INSPECTION_READS
from tests.fixtures.broker import Rest, eventually
from tests.fixtures.in_process import running_in_process
from tests.fixtures.metrics import scrape
from tests.fixtures.standby import Pair, Server, standing_by

pytestmark = [pytest.mark.slow, pytest.mark.ci]

_PAUSE, _RESUME = b"SELECT pg_wal_replay_pause()", b"SELECT pg_wal_replay_resume()"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with standing_by() as pair:
        migrations.upgrade(pair.url)
        yield pair


def _url(server: Server) -> str:
    return f"postgresql://postgres@/postgres?host={server.directory}"


def _wait_for_no_standby(pair: Pair) -> None:
    pair.primary.ask(b"ALTER SYSTEM SET synchronous_standby_names = ''")
    pair.primary.ask(b"SELECT pg_reload_conf()")


class Looking:
    """A broker with a replica, and a project of its own."""

    def __init__(self, broker: Broker, client: httpx.AsyncClient, project: str) -> None:
        self.broker, self.rest = broker, Rest(client, project)

    def count(self, by: str) -> int:
        return int(self.broker.core.counters.process[INSPECTION_READS[by]])

    async def seen(self) -> int:
        """How many messages a look at the subscription shows."""
        answer = await self.rest.ok("GET", f"{self.rest.subscription()}/messages?pageSize=100")
        return len(answer.get("messages", []))

    async def uses(self, in_use: bool) -> None:
        async def is_so() -> bool:
            await self.broker.replica_reads.run_once()
            return self.broker.replica_reads.in_use is in_use

        await eventually(is_so)


@pytest.fixture
async def inspection(pair: Pair, project: str, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Looking]:
    url, replica = _url(pair.primary), _url(pair.standby)
    config = AppConfig(database_url=url, replica_database_url=replica, replica_max_lag_seconds=3_600, pool_size=4)
    broker = Broker(config)
    async with running_in_process(broker) as client:
        inspection = Looking(broker, client, project)
        await inspection.rest.create_topic()
        await inspection.rest.create_subscription()
        await inspection.uses(True)
        caplog.set_level(logging.INFO, "broker.state")
        yield inspection


async def test_a_look_reads_the_replica_and_sees_what_was_answered_before(inspection: Looking) -> None:
    for number in range(1, 21):
        await inspection.rest.publish("x")
        assert await inspection.seen() == number
    rest = inspection.rest
    lags = await rest.ok("GET", f"{rest.project}/lag?fresh=true")
    assert int(lags["subscriptions"][0]["undeliveredMessages"]) == 20
    assert len((await rest.ok("GET", f"{rest.topic()}/messages?pageSize=100"))["messages"]) == 20
    assert inspection.count("replica") >= 18  # a stall of the machine may send one or two to the primary


async def test_a_replica_that_stands_still_hides_nothing(inspection: Looking, pair: Pair) -> None:
    pair.standby.ask(_PAUSE)
    try:
        before = inspection.count("primary")
        await inspection.rest.publish("x")
        assert inspection.broker.replica_reads.in_use  # it may be an hour behind
        assert await inspection.seen() == 1
        assert inspection.count("primary") == before + 1
    finally:
        pair.standby.ask(_RESUME)


async def test_a_replica_that_is_too_far_behind_is_left_alone_until_it_is_near(
    inspection: Looking, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    inspection.broker.replica_reads._most_behind = 0.5
    pair.standby.ask(_PAUSE)
    try:
        await inspection.rest.publish("x")
        await inspection.uses(False)
        scraped = await scrape(inspection.rest.client)
        assert scraped.get("broker_replica_lag_seconds") > 0.5
        assert scraped.get("broker_replica_in_use") == 0
    finally:
        pair.standby.ask(_RESUME)
    await inspection.uses(True)
    said = [line for line in caplog.messages if "replica" in line]
    assert len(said) == 2, said
    assert "s behind, and may be 0.5" in said[0]
    assert "calls that look read the replica again" in said[1]


async def test_a_replica_that_dies_is_not_missed_and_is_read_again(
    inspection: Looking, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    _wait_for_no_standby(pair)
    await inspection.rest.publish("x")
    await asyncio.to_thread(pair.standby.kill)
    assert await inspection.seen() == 1
    await inspection.uses(False)
    assert [found[1] for found in inspect_replica_of(_url(pair.primary), _url(pair.standby))] == ["error"]
    await asyncio.to_thread(pair.standby.start)
    await inspection.uses(True)
    assert len([line for line in caplog.messages if "replica" in line]) == 2
    found = inspect_replica_of(_url(pair.primary), _url(pair.standby))
    assert [(check, state) for check, state, *_ in found] == [("replica", "ok")]


async def test_what_is_no_standby_of_this_database_is_not_read(
    inspection: Looking, pair: Pair, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = AppConfig(database_url=_url(pair.primary), replica_database_url=database_url, pool_size=4)
    broker = Broker(config)
    async with running_in_process(broker):
        await broker.replica_reads.run_once()
        assert not broker.replica_reads.in_use
        assert "it is no copy of this database" in caplog.text
    [(_, state, finding, *_)] = inspect_replica_of(_url(pair.primary), database_url)
    assert (state, finding) == ("error", "it is not a copy of this database")


async def test_a_replica_that_was_promoted_is_not_read(
    inspection: Looking, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    _wait_for_no_standby(pair)
    await asyncio.to_thread(pair.standby.run, "pg_ctl", "-w", "promote")
    await inspection.rest.publish("x")
    assert await inspection.seen() == 1  # before any pass has found out
    await inspection.uses(False)
    assert "it follows no primary: it was promoted" in caplog.text
    [(_, state, finding, *_)] = inspect_replica_of(_url(pair.primary), _url(pair.standby))
    assert (state, finding) == ("error", "it follows no primary")
