"""What is asked by several statements where tables lie on nodes is what one statement says elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.backlog.locked_backlog import lock_backlogs
from broker.core.backlog.outcome import Outcome
from broker.core.backlog.seeking import snapshot_rows as snapshots
from broker.core.backlog.seeking.create_snapshot_citus import create_snapshot
from broker.core.backlog.seeking.read_oldest_in_snapshot_citus import read_oldest_in_snapshot
from broker.core.claiming.transaction.request import Quiet
from broker.core.log.messages import append_messages, encode_messages
from broker.core.log.packing import encode_scheduled
from broker.core.retention import (
    delete_finished_attempts_citus,
    finished_attempts,
    pins,
    read_oldest_pins_citus,
)
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import BEGIN, COMMIT, Statement
from broker.features.dead_letters import dead_letter_groups
from broker.features.dead_letters import rows as dead_letter_rows
from broker.features.dead_letters.dead_letter_groups import read_dead_letters
from broker.features.dead_letters.dead_letter_list import DeadLetterPage
from broker.features.dead_letters.forwarding import dead_letter_work
from broker.features.dead_letters.redriving.rows import _asked as asked_of
from broker.features.dead_letters.redriving.rows import redrive
from broker.features.delayed import rows as scheduled_messages
from broker.features.lag_board import sample_rows as lag_samples
from broker.features.quotas import retained_rows as retained_bytes
from broker.features.retraction.removal import Asked, retract
from broker.model.journal import NOBODY
from broker.model.message import NewMessage
from broker.model.message_id import FIRST_ID_SEQ
from tests.fixtures.dead_letters import make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, add_subscription, make_log, texts
from tests.interleavings.steps import open_transaction, until_waiting
from tests.query_plans.recorder import Recorder

pytestmark = pytest.mark.one_server("it has both forms of a statement, and nodes do not take the other one")
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@asynccontextmanager
async def as_on_nodes(log: Log) -> AsyncIterator[HotConnection]:
    """A session that takes its database for a distributed one."""
    async with log.database.hot() as connection:
        was, connection.is_distributed = connection.is_distributed, True
        try:
            yield connection
        finally:
            connection.is_distributed = was


async def _pins(log: Log, now: datetime) -> pins.Pins:
    async with log.database.connection() as connection:
        [alike] = await read_oldest_pins_citus.read_oldest_pins(connection, {"now": now})
        assert alike == await pins.read_oldest_pins(connection, now=now)
    oldest: pins.Pins = alike
    return oldest


async def _snapshot(log: Log, name: str, now: datetime) -> Any:
    async with log.database.transaction() as connection:
        return await snapshots.insert_snapshot(
            connection,
            name=name,
            labels={},
            subscription=log.subscription,
            retained_since=log.start - HOUR,
            now=now,
        )


async def test_what_pins_messages(log: Log) -> None:
    await _pins(log, log.start)
    seen = {await _pins(log, log.start + SECOND)}
    for step in range(1, 4):
        await log.publish("a", "b", now=log.start + step * SECOND, key="k" if step == 2 else "")
        seen.add(await _pins(log, log.start + step * SECOND))
    [delivery, *_] = await log.pull(2, now=log.start + 3 * SECOND, ordered=True)
    seen.add(await _pins(log, log.start + 3 * SECOND))
    assert await _snapshot(log, "projects/p/snapshots/s", log.start + 4 * SECOND)
    await log.execute("UPDATE snapshots SET expire_time = expire_time + interval '1 hour'")
    await log.acknowledge(delivery)
    while await log.pull(9, now=log.start + 5 * SECOND, ordered=True):
        seen.add(await _pins(log, log.start + 5 * SECOND))
    await log.execute("UPDATE delivery_attempts SET redriven = true")
    for days in (0, 1, 30):  # within what the subscription retains, and behind it
        seen.add(await _pins(log, log.start + 6 * SECOND + timedelta(days=days)))
    await log.execute("UPDATE subscriptions SET detached = true")
    seen.add(await _pins(log, log.start + 6 * SECOND))
    assert len(seen) > 5


async def test_a_snapshot_that_the_catalog_does_not_know_any_more_pins(log: Log) -> None:
    """A seek to it may be under way: its cursors have not moved when the shards were read."""
    await log.publish("a", now=log.start + SECOND)
    await _snapshot(log, "projects/p/snapshots/s", log.start + SECOND)
    await log.acknowledge((await log.pull(now=log.start + SECOND))[0])
    later = log.start + timedelta(days=30)
    await log.execute("DELETE FROM snapshots")
    async with log.database.connection() as connection:
        [(oldest, _)] = await read_oldest_pins_citus.read_oldest_pins(connection, {"now": later})
    assert oldest is not None
    assert oldest < log.start + SECOND


async def test_which_dead_letters_there_are(log: Log) -> None:
    await log.execute(
        "UPDATE subscriptions SET dead_letter_topic = 'projects/p/topics/d', max_delivery_attempts = 1"
    )
    await log.publish("a", "b")
    for now in (log.start, log.start + ACK_DEADLINE + SECOND):
        await log.pull(1, now=log.start)
        async with as_on_nodes(log) as session:
            alike = await dead_letter_work.find_dead_letter_work(session, now=now)
            session.is_distributed = False
            assert alike == await dead_letter_work.find_dead_letter_work(session, now=now)
    assert alike == [(log.subscription.name, log.shard_id)]
    await log.execute("UPDATE delivery_attempts SET status = 'exhausted', next_delivery_at = 'infinity'")
    await log.execute("UPDATE subscriptions SET dead_letter_topic = NULL, max_delivery_attempts = NULL")
    async with as_on_nodes(log) as session:
        assert await dead_letter_work.find_dead_letter_work(session, now=log.start) == alike
    await log.execute("UPDATE subscriptions SET detached = true")
    async with as_on_nodes(log) as session:
        assert await dead_letter_work.find_dead_letter_work(session, now=log.start) == []


async def test_which_attempts_are_finished(log: Log) -> None:
    async with log.database.transaction() as connection:
        gone = await add_subscription(connection, log.topic, "gone", log.start)
    await log.publish("a", "b", "c")
    await log.pull(2)
    await log.execute(
        "INSERT INTO delivery_attempts (shard_id, subscription_id, attempt_id, part, status, attempt_number,"
        " next_delivery_at, delivered_at, seqs, open, first_publish_time, last_publish_time)"
        f" SELECT shard_id, {gone.subscription_id}, attempt_id + 1, part, status, attempt_number, next_delivery_at,"
        " delivered_at, seqs, open, first_publish_time, last_publish_time FROM delivery_attempts"
    )
    for now in (log.start, log.start + timedelta(days=30)):
        found: list[set[Any]] = []
        for on_nodes in (True, False):
            async with log.database.connection() as connection, connection.transaction(force_rollback=True):
                await connection.execute(
                    "DELETE FROM subscriptions WHERE subscription_id = %s", [gone.subscription_id]
                )
                if on_nodes:
                    form = delete_finished_attempts_citus.delete_finished_attempts
                    rows: Sequence[Any] = await form(connection, {"now": now})
                else:
                    rows, _ = await finished_attempts.delete_finished_attempts(connection, now=now, limit=9)
                found.append({tuple(row) for row in rows})
        assert found[0] == found[1]
        assert len(found[0]) == (1 if now == log.start else 2)


async def test_a_row_is_split_by_a_second_statement(log: Log) -> None:
    await log.publish("a", "b", "c")
    [delivery] = await log.pull()
    async with as_on_nodes(log) as session:
        assert not await log.modify_ack_deadline(delivery, [1], log.start + SECOND, connection=session)
        assert not session.in_transaction
    assert await log.attempts() == [("delivering", 1, "101"), ("delivering", 1, "010")]
    assert [texts([each]) for each in await log.pull(now=log.start + 2 * SECOND)] == [["b"]]
    async with as_on_nodes(log) as session:
        assert not await log.nack(delivery, [0], connection=session)
    assert [texts([each]) for each in await log.pull(now=log.start + SECOND)] == [["a"]]


async def test_what_is_due_is_looked_for_where_a_glimpse_has_not_ruled_it_out(log: Log) -> None:
    """Fresh messages, due ones, and those of a subscription whose floor is further back than was looked."""
    for number, age in enumerate((timedelta(), 5 * MINUTE)):
        found: list[list[str]] = []
        for on_nodes in (False, True):
            one = await make_log(log.database, log.start, f"log-{number}-{on_nodes}")
            async with as_on_nodes(one) as session:
                session.is_distributed = on_nodes
                seen = list[str]()

                async def pull(most: int, now: datetime) -> None:
                    seen.extend(await one.pull_texts(most, now=now, connection=session))  # noqa: B023

                await one.publish("a", "b", connection=session)
                [delivery] = await one.pull(connection=session)
                await pull(9, one.start)
                await one.nack(delivery, [0])
                now = one.start + age + ACK_DEADLINE + SECOND
                await one.publish("c", now=now, connection=session)
                for _ in range(4):
                    await pull(1, now)
                await pull(9, now + HOUR)
            found.append(seen)
        assert found[0] == found[1]
        assert sorted(found[0]) == ["a", "a", "b", "b", "c", "c"]


async def test_when_the_next_falls_due_and_where_the_cursor_goes(log: Log) -> None:
    rests = []
    for on_nodes in (False, True):
        async with as_on_nodes(log) as session:
            session.is_distributed = on_nodes
            start = log.start + 2 * MINUTE * on_nodes
            await log.publish("a", "b", now=start, connection=session)
            await log.pull(1, now=start, connection=session)
            await log.pull(1, now=start + SECOND, connection=session)
            claimed = await log.claim(now=start + SECOND, connection=session)
            assert isinstance(claimed.rest, Quiet)
            assert claimed.rest.until is not None
            cursors = await _rows(log, "SELECT next_publish_time, next_seq, due_floor FROM cursors")
            [(publish_time, seq, floor)] = cursors
            rests.append((claimed.rest.until - start, publish_time - start, seq % 2, floor - start))
            await log.execute("DELETE FROM delivery_attempts")
    assert rests[0] == rests[1]


async def test_acks_of_whole_attempts(log: Log) -> None:
    """In one part, in several, a part that is gone, and again."""
    for changes in ([], [[0]], [[0], [1]], [[0, 1]]):
        for acked in ([], [0], [2]):
            outcomes = []
            for on_nodes in (False, True):
                await log.publish("a", "b", "c")
                [delivery] = await log.pull()
                for number, ordinals in enumerate(changes, 1):
                    await log.modify_ack_deadline(delivery, ordinals, log.start + (20 + number) * SECOND)
                await log.acknowledge(delivery, acked)
                async with as_on_nodes(log) as session:
                    session.is_distributed = on_nodes
                    missing = [await log.acknowledge(delivery, connection=session) for _ in range(2)]
                assert missing == [set(acked), {0, 1, 2}]
                outcomes.append(missing)
                assert await log.attempts() == []
            assert outcomes[0] == outcomes[1]


async def test_an_ack_of_a_whole_attempt_waits_for_a_new_deadline_of_a_part(log: Log) -> None:
    """And takes the other part as well, which was not there when it began."""
    await log.publish("a", "b")
    [delivery] = await log.pull()
    async with open_transaction(log.database) as first:
        await log.modify_ack_deadline(delivery, [1], log.start + HOUR, connection=first)
        async with as_on_nodes(log) as session:
            ack = asyncio.create_task(log.acknowledge(delivery, connection=session))
            await until_waiting(log.database)
            await first.run((COMMIT, {}))
            assert await ack == set()
            await first.run((BEGIN, {}))
    assert await log.attempts() == []


async def test_a_snapshot_copies_what_locked_cursors_and_attempts_say(log: Log) -> None:
    await log.publish("a", "b", "c", now=log.start + SECOND)
    await log.pull(1, now=log.start + SECOND)
    await _snapshot(log, "projects/p/snapshots/one", log.start + SECOND)
    held = "SELECT shard_id, next_publish_time, next_seq FROM snapshot_positions WHERE snapshot_id = {}"
    out = (
        "SELECT shard_id, attempt_id, part, seqs::text, open::text FROM snapshot_outstanding WHERE snapshot_id = {}"
    )
    async with log.database.transaction() as connection:
        await create_snapshot(connection, {"snapshot_id": 0, "subscription_id": log.subscription.subscription_id})
        asked = {"snapshot_id": 0, "retained_since": log.start - HOUR}
        [(oldest,)] = await read_oldest_in_snapshot(connection, asked)
    assert oldest == log.start + SECOND
    [[one]] = await log.rows("SELECT snapshot_id FROM snapshots")
    for query in (held, out):
        rows = await log.rows(query.format(0))
        assert rows
        assert rows == await log.rows(query.format(one))


async def test_where_messages_wait_for_their_time(log: Log) -> None:
    to_come = encode_scheduled(
        [NewMessage(data=b"a"), NewMessage(data=b"b")], [log.start + HOUR, log.start + 2 * HOUR]
    )
    async with as_on_nodes(log) as session:
        assert await scheduled_messages.find_scheduled_shards(session) == []
        await append_messages(session, shard_id=log.shard_id, requests=[to_come], now=log.start)
        alike = await scheduled_messages.find_scheduled_shards(session)
        session.is_distributed = False
        assert alike == await scheduled_messages.find_scheduled_shards(session)
    assert [each.due_at for each in alike] == [log.start + HOUR]


async def _rows(log: Log, query: str) -> list[Any]:
    async with log.database.connection() as connection:
        return await (await connection.execute(query.encode())).fetchall()


_WISHES: dict[str, Any] = {
    "plain": {"messages": [NewMessage(data=bytes([n])) for n in range(3)]},
    "keyed": {"messages": [NewMessage(data=b"a", ordering_key="k"), NewMessage(data=b"", ordering_key="k")]},
    "attributes": {"messages": [NewMessage(attributes={"a": "b"}), NewMessage(data=b"none")]},
    "shared": {"messages": [NewMessage(data=b"a"), NewMessage(data=b"b")], "shared": ['{"s": 1}', '{"s": 2}']},
    "large": {"messages": [NewMessage(data=bytes(1_500)) for _ in range(7)]},
    "expiring": {
        "messages": [NewMessage(data=b"a"), NewMessage(data=b"b")], "ttls": [timedelta(seconds=3), None]
    },
}  # fmt: skip


@pytest.mark.parametrize("names", [[name] for name in _WISHES] + [list(_WISHES)], ids=" ".join)
async def test_rows_that_are_appended_one_by_one(log: Log, names: list[str]) -> None:
    requests = [encode_messages(**_WISHES[name]) for name in names]
    rows = []
    for on_nodes in (False, True):
        async with as_on_nodes(log) as session:
            session.is_distributed = on_nodes
            appended = await append_messages(session, shard_id=log.shard_id, requests=requests, now=log.start)
            assert appended is not None
        found = await _rows(
            log,
            f"SELECT publish_time, last_seq - {appended.first_seq}, count, size, ordering_key, attributes, data,"
            " shared_attributes, expires_at FROM message_batches"
            f" WHERE last_seq >= {appended.first_seq} ORDER BY last_seq",
        )
        rows.append(found)
    assert rows[0] == rows[1]
    assert rows[0]


async def test_a_closed_shard_takes_no_rows_one_by_one_either(log: Log) -> None:
    await log.execute("UPDATE shards SET open = false")
    async with as_on_nodes(log) as session:
        requests = [encode_messages(**_WISHES["plain"])]
        assert await append_messages(session, shard_id=log.shard_id, requests=requests, now=log.start) is None
        assert not session.in_transaction
    assert await _rows(log, "SELECT FROM message_batches") == []


@asynccontextmanager
async def undone(log: Log, on_nodes: bool) -> AsyncIterator[HotConnection]:
    """A transaction on one server, or as on nodes, that is not committed."""
    async with log.database.hot() as session:
        session.is_distributed = on_nodes
        await session.run((BEGIN, {}))
        try:
            yield session
        finally:
            await session.close()


async def test_which_cursors_are_locked(log: Log) -> None:
    other = await make_log(log.database, log.start, "other")
    async with log.database.transaction() as connection:
        for name in ("first", "second"):
            await add_subscription(connection, log.topic, name, log.start)
            await add_subscription(connection, other.topic, f"other-{name}", log.start)
    own = log.subscription.subscription_id, [log.shard_id, other.shard_id]
    for shard_ids, of_own in (
        ([], own),
        ([other.shard_id], own),
        ([log.shard_id, other.shard_id], (0, [])),
        ([], (0, [])),
    ):
        found = []
        for on_nodes in (True, False):
            async with undone(log, on_nodes) as session:
                locked = await lock_backlogs(
                    session, shard_ids=shard_ids, own=of_own, consumable=[own[0]], now=log.start
                )
                found.append(
                    {shard_id: [backlog.cursor for backlog in backlogs] for shard_id, backlogs in locked.items()}
                )
        assert found[0] == found[1]
        assert [*found[0]] == sorted(found[0])


async def test_which_dead_letters_are_chosen_and_what_becomes_of_them(log: Log) -> None:
    dead_letters = await make_dead_letters(log)
    await dead_letters.give_up(*"abcd")
    await dead_letters.give_up("e", key="k")
    await log.execute(f"DELETE FROM message_batches WHERE shard_id = {log.shard_id}")
    await log.execute(f"DELETE FROM message_batches WHERE shard_id = {dead_letters.dead.shard_id} AND last_seq = 5")
    source = '$."CloudPubSubDeadLetterSourceDeliveryCount" == "1"'
    asked = asked_of(dead_letters.wanted())
    for choice in (
        {},
        {"filter_path": source},
        {"filter_path": '$.a == "b"'},
        {"max_scanned": 2},
        {"from_seq": 4},
        {"reasons": ["nack"]},
        {"id_shards": [log.shard_id, dead_letters.dead.shard_id], "id_seqs": [2, 3]},
    ):
        found = []
        for on_nodes in (True, False):
            async with undone(log, on_nodes) as session:
                found.append(await read_dead_letters(session, asked | choice))
        assert found[0] == found[1], choice
    done, stragglers = [], []
    for on_nodes in (True, False):
        async with undone(log, on_nodes) as session:
            done.append(await redrive(session, dead_letters.wanted(), log.attempt_ids))
            check = Statement(b"look", b"SELECT * FROM straggler_batches ORDER BY last_seq")
            stragglers.append((await session.run((check, {})))[0])
    assert done[0] == done[1]
    assert stragglers[0] == stragglers[1]
    assert [*done[0].outcomes.values()] == [Outcome.REDRIVEN] * 4 + [Outcome.GONE]
    assert len(stragglers[0]) == 4


async def test_messages_that_are_put_back_are_read_as_many_at_a_time_as_fit(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_groups, "_MAX_BYTES", 1)
    dead_letters = await make_dead_letters(log)
    await dead_letters.give_up("a", "b")
    await log.execute(f"DELETE FROM message_batches WHERE shard_id = {log.shard_id}")
    async with as_on_nodes(log) as session:
        recorder = Recorder(session)
        done = await dead_letters.step(0, connection=recorder)  # type: ignore[arg-type]
    assert [*done.outcomes.values()] == [Outcome.REDRIVEN] * 2
    assert [statement.name for statement, _ in recorder.every].count(b"put_back_dead_letters") == 2
    assert sorted(await log.pull_texts()) == ["a", "b"]


async def test_what_is_retracted(log: Log) -> None:
    other = await make_log(log.database, log.start, "other")
    for each in (log, other):
        await each.publish("a", "b")
        to_come = encode_scheduled([NewMessage(data=b"later")], [log.start + HOUR])
        async with log.database.hot() as session:
            await append_messages(session, shard_id=each.shard_id, requests=[to_come], now=log.start)
    await log.pull(1)
    ids = [
        (each.shard_id, number) for number in (FIRST_ID_SEQ + 1, 1, 7, FIRST_ID_SEQ + 9) for each in (other, log)
    ]
    done = []
    for on_nodes in (True, False):
        async with undone(log, on_nodes) as session:
            asked = Asked(ids=ids, author=NOBODY, now=log.start)
            first, second = await retract(session, asked), await retract(session, asked)
            done.append((first, second))
    assert done[0] == done[1]
    retracted = [each for each in done[0][0].outcomes.values() if each is Outcome.RETRACTED]
    assert len(retracted) == 4


async def test_which_subscriptions_are_to_be_sampled(log: Log) -> None:
    """Those with a backlog, and those of which there are other dead letters than before."""
    async with log.database.transaction() as connection:
        new = await add_subscription(connection, log.topic, "new", log.start)
    await log.execute(
        "INSERT INTO lag_samples SELECT subscription_id, now(), 0, false, 0, NULL, 0, 0, 0, 0, 0, 0, 'CAUGHT_UP',"
        " '{}' FROM subscriptions"
    )
    seen = []

    async def check() -> None:
        async with as_on_nodes(log) as session:
            alike = await lag_samples.next_to_sample(session, after="", max_rows=10)
            session.is_distributed = False
            assert alike == await lag_samples.next_to_sample(session, after="", max_rows=10)
        seen.append((len(alike.due_ids), sum(alike.dead_letters.values())))

    await check()
    await log.publish("a")
    await check()
    [delivery] = await log.pull()
    await check()
    await log.acknowledge(delivery)
    await log.execute("UPDATE lag_samples SET published_messages = 1, dead_letters = 1")
    await log.execute(
        "INSERT INTO dead_letters SELECT shard_id, now(), n, shard_id, n, now(), 'projects/p/topics/t', "
        f"{new.subscription_id}, 'new', 5, 'attempts' FROM shards, generate_series(1, 2) AS n"
    )
    await check()
    assert seen == [(0, 0), (2, 0), (2, 0), (2, 2)]


async def test_what_projects_keep(log: Log) -> None:
    seen = set()

    async def check(now: datetime) -> None:
        async with as_on_nodes(log) as session:
            found = []
            for session.is_distributed in (True, False):
                kept = await retained_bytes.read_kept(session, projects=["projects/p", "projects/q"], now=now)
                found.append([each._replace(spans=sorted(each.spans)) for each in kept])
        assert found[0] == found[1]
        seen.add(str(found[0]))

    await check(log.start)
    await log.publish("a", "b", now=log.start + SECOND)
    await log.publish("c", key="k", now=log.start + SECOND)
    await check(log.start + SECOND)
    deliveries = await log.pull(3, now=log.start + SECOND, ordered=True)
    await check(log.start + SECOND)
    await _snapshot(log, "projects/p/snapshots/s", log.start + SECOND)
    for days in (0, 30):
        await check(log.start + timedelta(days=days))
    for delivery in deliveries:
        await log.acknowledge(delivery)
    await check(log.start + SECOND)
    await log.execute("DELETE FROM snapshots")
    await check(log.start + SECOND)
    await log.execute("UPDATE subscriptions SET retain_acked_messages = true")
    await check(log.start + HOUR)
    await log.execute("UPDATE topics SET message_retention = interval '30 days'")
    await check(log.start + HOUR)
    await log.execute("UPDATE subscriptions SET detached = true")
    await check(log.start + HOUR)
    await log.execute("DELETE FROM topics")
    await log.execute("UPDATE subscriptions SET topic = '_deleted-topic_'")
    await check(log.start + HOUR)
    assert len(seen) > 5, seen


async def test_dead_letters_of_several_shards_share_a_page(log: Log) -> None:
    dead_letters = await make_dead_letters(log)
    for text in "abc":
        await dead_letters.give_up(text)
    asked = dead_letter_rows.AskedDeadLetters(
        subscription_id=log.subscription.subscription_id,
        shard_ids=[log.shard_id],
        filter_path=None,
        body_path=None,
        page=DeadLetterPage(10),
        now=log.start,
    )
    async with as_on_nodes(log) as session:
        alike = await dead_letter_rows.list_dead_letters(session, asked)
        session.is_distributed = False
        assert alike == await dead_letter_rows.list_dead_letters(session, asked)
    assert [dead_letter.data for dead_letter in alike.found] == [b"a", b"b", b"c"]


async def test_what_is_appended_in_a_transaction_is_committed_with_it(log: Log) -> None:
    async with as_on_nodes(log) as session:
        await session.run((BEGIN, {}))
        await log.publish("a", connection=session)
        assert session.in_transaction
        assert await log.rows("SELECT count(*) FROM messages") == [(0,)]
        await session.run((COMMIT, {}))
    assert await log.rows("SELECT count(*) FROM messages") == [(1,)]
