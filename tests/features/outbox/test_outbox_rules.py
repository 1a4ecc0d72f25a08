"""Transactions of applications beside publishers, relays beside each other (J7)."""

import asyncio

import pytest

from broker.core.log.messages import encode_messages
from broker.db.driver.hot_connection import HotConnection
from broker.features.outbox import rows as outbox
from broker.features.outbox.rows import EVER, Since, append_outbox_messages, find_outbox_rows
from broker.model.message import NewMessage
from tests.fixtures.application import Application, Session, publish
from tests.fixtures.log import Log
from tests.interleavings.steps import changed, execute, paused, until_waiting


async def seen(log: Log, since: Since = EVER) -> tuple[list[str], Since]:
    """What a look finds, and what the next one is told."""
    async with log.session() as session:
        found = await find_outbox_rows(session, since=since)
    return [each.message.data.decode() for each in found.messages], found.since


async def relay(log: Log, connection: HotConnection, since: Since = EVER) -> list[int] | None:
    """Relay all that is found, in one transaction; the shards that get it."""
    found = await find_outbox_rows(connection, since=since)
    messages = [NewMessage(data=each.message.data) for each in found.messages]
    batches = {log.shard_id: [encode_messages(messages)]} if messages else {}
    ns = [each.n for each in found.messages]
    topic_id = log.topic.topic_id
    answers = await append_outbox_messages(connection, topic_id=topic_id, ns=ns, batches=batches, now=log.start)
    return None if answers is None else list(answers)


async def relay_once(log: Log, since: Since = EVER) -> list[int] | None:
    async with log.database.hot() as connection:
        return await relay(log, connection, since)


@pytest.mark.parametrize("ruled", [True, False])
async def test_a_transaction_that_is_open_blocks_no_publisher(
    log: Log, application: Application, ruled: bool
) -> None:
    """Without the rule it would take its place in the log at once, and all who come after it would wait."""
    with application.session(autocommit=True) as session:
        publish(session, "staged")
    if not ruled:
        body = f"BEGIN UPDATE shards SET head = head + 1 WHERE shard_id = {log.shard_id}; RETURN 0; END"
        await log.execute(
            "CREATE OR REPLACE FUNCTION write_outbox_message("
            "of_topic text, of_body bytea, of_attributes jsonb, of_key text"
            f") RETURNS bigint LANGUAGE plpgsql AS '{body}'"
        )
    with application.session() as session:
        publish(session, "open")
        publishing = asyncio.create_task(log.publish("a"))
        if not ruled:
            await until_waiting(log.database)
            session.rollback()
        await publishing
        assert await relay_once(log) == [log.shard_id]
        assert await log.pull_texts() == ["a", "staged"]


@pytest.mark.parametrize("ruled", [True, False])
async def test_one_process_at_a_time_relays_for_a_topic_and_nobody_waits(
    log: Log, application: Application, monkeypatch: pytest.MonkeyPatch, ruled: bool
) -> None:
    if not ruled:
        lock = "(SELECT true FROM topics WHERE topic_id = $2 FOR NO KEY UPDATE SKIP LOCKED)"
        without = changed(outbox._TAKE_OUTBOX_MESSAGES, lock, "$2 > 0")
        monkeypatch.setattr(outbox, "_TAKE_OUTBOX_MESSAGES", without)
        monkeypatch.setattr(outbox, "_SHORT_WAIT", changed(outbox._SHORT_WAIT, "300ms", "20s"))
    with application.session(autocommit=True) as session:
        publish(session, "first")
        async with paused(log.database, before="COMMIT") as outbox_log:
            relays = asyncio.create_task(relay(log, outbox_log))
            await outbox_log.reached.wait()
            publish(session, "second")
            other = asyncio.create_task(relay_once(log))
            if ruled:
                assert await other is None
            else:
                await until_waiting(log.database)
            outbox_log.go.set()
            assert await relays == [log.shard_id]
            assert await other is None  # the first is not there any more: it begins anew
    assert await relay_once(log) == [log.shard_id]
    assert await log.pull_texts() == ["first", "second"]


async def test_what_is_undone_is_still_staged(log: Log, application: Application) -> None:
    with application.session() as session:
        publish(session, "a")
    async with paused(log.database, before="COMMIT") as outbox_log:
        relays = asyncio.create_task(relay(log, outbox_log))
        await outbox_log.reached.wait()
        relays.cancel()  # as when the process ends there
        with pytest.raises(asyncio.CancelledError):
            await relays
    assert await log.pull_texts() == []
    assert await relay_once(log) == [log.shard_id]
    assert await log.pull_texts() == ["a"]


_UNDER_WAY = "SELECT n, size FROM outbox WHERE xid = ANY($2)"
_NEWEST = "SELECT n, size FROM outbox WHERE xid >= $3"


async def seen_before(log: Log, newest: Session) -> Since:
    """Publishes in `newest`, and looks before any later transaction of the whole server has ended: else `newest` is
    one of those that were under way.  Tries again where another database's was faster.
    """
    while True:
        publish(newest, "newest")
        row = newest.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
        found, since = await seen(log)
        assert found == []
        if row is not None and row[0] >= since.xmax:
            return since
        newest.rollback()


@pytest.mark.parametrize("rule", ["", _UNDER_WAY, _NEWEST])
async def test_a_look_finds_what_was_open_at_the_one_before_whatever_came_since(
    log: Log, application: Application, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """Without a rule what commits late would not be found by a look that remembers."""
    if rule:
        nothing = rule.replace("WHERE", "WHERE false AND")
        monkeypatch.setattr(outbox, "_FIND_OUTBOX_ROWS", changed(outbox._FIND_OUTBOX_ROWS, rule, nothing))
    with application.session() as old, application.session() as newest:
        publish(old, "old")
        with application.session(autocommit=True) as session:
            publish(session, "between")
        await log.execute("DELETE FROM outbox")  # as if it had been relayed
        since = await seen_before(log, newest)
        newest.commit()
        old.commit()
        with application.session(autocommit=True) as session:
            publish(session, "last")
    found, _ = await seen(log, since)
    lost = {"": [], _UNDER_WAY: ["old"], _NEWEST: ["newest"]}[rule]
    assert found == [text for text in ("old", "newest", "last") if text not in lost]


async def test_what_was_deleted_is_not_looked_at_again_while_vacuum_is_held_back(
    log: Log, application: Application
) -> None:
    with application.session() as report, application.session(autocommit=True) as session:
        report.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        report.execute("SELECT 1 FROM orders")
        for _ in range(3):
            session.execute("SELECT pubsub.publish('projects/p/topics/t', 'x') FROM generate_series(1, 2000)")
            await log.execute("DELETE FROM outbox")
        _, since = await seen(log)
        publish(session, "new")
        assert await _read_by_a_look(log, since) < 10
        assert await _read_by_a_look(log, EVER) > 5_000


async def _read_by_a_look(log: Log, since: Since) -> int:
    """Entries of the indexes that are read, dead or alive."""
    counted = (
        "SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid))::int FROM pg_index"
        " WHERE indrelid = 'outbox'::regclass"
    )
    async with log.database.hot() as session:
        await execute(session, "BEGIN")  # within which nothing is flushed
        [(before,)] = await execute(session, counted)
        await find_outbox_rows(session, since=since)
        [(after,)] = await execute(session, counted)
        await execute(session, "COMMIT")
    return int(after - before)
