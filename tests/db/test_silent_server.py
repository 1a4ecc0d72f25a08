"""A PostgreSQL that says nothing, neither answers nor errors: calls end all the same, and hold up nobody else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import psycopg
import pytest
from sqlalchemy import text

from broker.core.catalog.resource_cache import ResourceCache
from broker.core.context.running_processes import RunningProcesses
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.db.driver.database import Database
from broker.db.driver.notification_seal import read_seal
from broker.db.driver.notifications import ResourceChanged, listen, notify_resources_changed
from broker.model.errors import NotFound, Unavailable
from tests.fixtures.relay import OutboxRelay, relayed

pytestmark = [pytest.mark.slow, pytest.mark.ci]

_PATIENCE_SECONDS = 1.0
_BOUND_SECONDS = 20.0  # of what takes _PATIENCE_SECONDS or so; psycopg alone would wait for ever
_AT_ONCE_SECONDS = 3.0  # of what takes no time; psycopg alone takes ten seconds


@pytest.fixture
async def relay(database_url: str) -> AsyncIterator[OutboxRelay]:
    async with relayed(database_url) as relay:
        yield relay


@asynccontextmanager
async def _open(relay: OutboxRelay, patience_seconds: float) -> AsyncIterator[Database]:
    database = Database(relay.url, patience_seconds=patience_seconds)
    try:
        yield database
    finally:
        relay.speaking.set()
        await database.close()


async def _by_connection(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("SELECT 1")


async def _by_transaction(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("SELECT 1"))


Way = Callable[[Database], Awaitable[None]]
WAYS = pytest.mark.parametrize("call", [_by_connection, _by_transaction])


async def _until_held(database: Database, call: Way) -> "asyncio.Task[None]":
    """The call, under way by the time this returns."""
    task = asyncio.ensure_future(call(database))
    await asyncio.wait([task], timeout=0.2)
    assert not task.done()
    return task


async def _until_answered(work: Callable[[], Awaitable[object]]) -> object:
    while True:
        with suppress(Unavailable):
            return await work()
        await asyncio.sleep(0.05)


@WAYS
async def test_a_call_that_is_never_answered_is_refused(relay: OutboxRelay, call: Way) -> None:
    async with _open(relay, _PATIENCE_SECONDS) as database:
        await call(database)
        relay.speaking.clear()
        async with asyncio.timeout(_BOUND_SECONDS):
            with pytest.raises(Unavailable):
                await call(database)
        relay.speaking.set()
        await call(database)


@WAYS
async def test_a_cancelled_call_ends_at_once_and_holds_up_nobody(relay: OutboxRelay, call: Way) -> None:
    async with _open(relay, 60.0) as database:
        await call(database)
        relay.speaking.clear()
        waiting = [await _until_held(database, call) for _ in range(2)]
        turns = 0
        for task in waiting:
            task.cancel()
        async with asyncio.timeout(_AT_ONCE_SECONDS):
            while not all(task.done() for task in waiting):
                turns += 1
                await asyncio.sleep(0)
        assert all(task.cancelled() for task in waiting)
        assert turns
        relay.speaking.set()
        await call(database)


async def test_a_transaction_that_is_given_up_is_undone_without_an_answer(relay: OutboxRelay) -> None:
    async with _open(relay, 60.0) as database:

        async def give_up() -> None:
            async with database.transaction() as connection:
                await connection.execute(text("CREATE TABLE undone ()"))
                relay.speaking.clear()
                raise ZeroDivisionError

        async with asyncio.timeout(_BOUND_SECONDS):
            with pytest.raises(ZeroDivisionError):
                await give_up()
        relay.speaking.set()
        async with database.connection() as connection:
            cursor = await connection.execute("SELECT to_regclass('undone')")
            assert await cursor.fetchone() == (None,)


async def test_what_a_cancelled_call_ran_ends_and_lets_go_of_its_locks(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("CREATE TABLE held ()")

    async def hold() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("LOCK held"))
            await connection.execute(text("SELECT pg_sleep(25)"))

    async with database.connection() as connection:
        holding = asyncio.create_task(hold())
        asking = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        )
        while await (await connection.execute(asking)).fetchone() != (1,):
            pass
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        await connection.execute("SET lock_timeout = '10s'")
        await connection.execute("DROP TABLE held")


async def test_a_dedicated_connection_is_given_up_too(relay: OutboxRelay) -> None:
    async with _open(relay, _PATIENCE_SECONDS) as database:
        connection = await database.dedicated_connection()
        relay.speaking.clear()
        async with asyncio.timeout(_BOUND_SECONDS):
            with pytest.raises(psycopg.OperationalError):
                await connection.execute("LISTEN nothing")
        assert connection.closed


async def test_connections_that_have_gone_silent_are_replaced_before_they_are_used(relay: OutboxRelay) -> None:
    """By far sooner than each call's patience ends."""
    async with _open(relay, 600.0) as database:
        for call in (_by_connection, _by_transaction):
            await call(database)
        relay.lose()
        async with asyncio.timeout(_BOUND_SECONDS):
            await _until_answered(lambda: _by_connection(database))
            await _until_answered(lambda: _by_transaction(database))


async def test_a_listener_notices_that_the_server_is_silent(relay: OutboxRelay) -> None:
    async with _open(relay, 600.0) as database:
        announcements = listen(database, silence_seconds=0.1, answer_seconds=_PATIENCE_SECONDS)
        assert await anext(announcements) is None
        relay.speaking.clear()
        async with asyncio.timeout(_BOUND_SECONDS):
            with pytest.raises(Unavailable):
                await anext(announcements)


async def test_a_listener_hears_what_is_announced_while_it_looks_for_the_server(database: Database) -> None:
    announcements = listen(database, silence_seconds=0.001)
    assert await anext(announcements) is None
    names = [f"projects/p/topics/topic{number}" for number in range(200)]

    async def announce() -> None:
        async with database.connection() as connection:
            for name in names:
                seal = await read_seal(connection)
                await notify_resources_changed(connection, schema=database.schema, seal=seal, names=[name])

    async with asyncio.timeout(_BOUND_SECONDS):
        announcing = asyncio.create_task(announce())
        heard = [await anext(announcements) for _ in names]
        await announcing
    assert heard == [ResourceChanged(name) for name in names]
    await announcements.aclose()


async def test_a_heartbeat_that_is_not_answered_ends_while_it_is_of_use(relay: OutboxRelay) -> None:
    async with _open(relay, 600.0) as database:
        clock = DatabaseClock(database)
        await clock.synchronise()
        processes = RunningProcesses(database, clock, changed=lambda: None, poll=lambda: None)
        await processes.run_once()
        relay.speaking.clear()
        async with asyncio.timeout(_BOUND_SECONDS):
            with pytest.raises(Unavailable):
                await processes.run_once()


async def test_resources_are_read_again_as_soon_as_another_server_answers(relay: OutboxRelay) -> None:
    """One that went silent with a read under way must not have the reads behind that refused for as long."""
    async with _open(relay, 600.0) as database:
        tasks = Tasks()
        resources = ResourceCache(database, tasks)
        with pytest.raises(NotFound):
            await resources.topic("projects/p/topics/topic")
        relay.speaking.clear()
        with pytest.raises(Unavailable):
            await resources.topic("projects/p/topics/topic")
        relay.lose()
        relay.speaking.set()
        async with asyncio.timeout(_BOUND_SECONDS):
            with pytest.raises(NotFound):
                await _until_answered(lambda: resources.topic("projects/p/topics/topic"))
        await tasks.close()
