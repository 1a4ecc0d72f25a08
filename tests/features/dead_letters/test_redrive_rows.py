"""Messages come back from their dead letters, exactly, however long that takes and whatever is dropped (G2)."""

import asyncio
from datetime import datetime, timedelta

import pytest

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.core.backlog import locked_backlog
from broker.core.backlog.outcome import Outcome
from broker.core.log.partitions import make_partitions_ahead
from broker.core.retention.retention import delete_unwanted, drop_partitions_behind
from broker.db.driver.locks import HOLD_RETENTION
from broker.features.dead_letters.redriving import rows as redrive
from broker.model.delivery import Delivery
from tests.fixtures.dead_letters import DeadLetters, make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, make_log, texts
from tests.interleavings.steps import changed, open_transaction, until_waiting

HOUR = timedelta(hours=1)


@pytest.fixture
async def dead_letters(log: Log) -> DeadLetters:
    return await make_dead_letters(log)


@pytest.fixture
async def ordered(log: Log) -> DeadLetters:
    return await make_dead_letters(log, ordered=True)


async def _tidy(log: Log, after: timedelta = HOUR) -> int:
    now = log.start + after
    async with log.database.connection() as connection:
        await make_partitions_ahead(connection, now=now)
        await delete_unwanted(connection, database=log.database, now=now)
        return await drop_partitions_behind(connection, database=log.database, now=now)


async def _drop(log: Log, now: datetime) -> None:
    async with log.database.connection() as connection:
        assert await drop_partitions_behind(connection, database=log.database, now=now) > 0


async def _acked(log: Log, **options: object) -> list[str]:
    """Pull and ack until there is nothing more."""
    found: list[str] = []
    while deliveries := await log.pull(**options):  # type: ignore[arg-type]
        found += texts(deliveries)
        await log.acknowledge_many(*deliveries)
    return found


async def _acknowledge_in_order(log: Log, delivery: Delivery, now: datetime) -> None:
    acks = {log.name(delivery): set(range(len(delivery.messages)))}
    async with log.session() as session:
        await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=(), now=now)


async def _seek_to_the_start(log: Log) -> None:
    await log.execute(
        f"UPDATE cursors SET next_seq = 1, next_publish_time = '{log.start - SECOND}'"
        f" WHERE subscription_id = {log.subscription.subscription_id}"
    )


async def _give_up_and_drop(dead_letters: DeadLetters, *data: str, key: str = "") -> datetime:
    """Dead letters whose messages are gone with their partition; the time."""
    log = dead_letters.log
    later = log.start + HOUR
    await log.publish(*data, key=key)
    async with log.database.connection() as connection:
        await make_partitions_ahead(connection, now=later)
    await dead_letters.fail(now=later)  # the dead letters stand in another partition, which alone somebody wants
    for delivery in await dead_letters.dead.pull(now=later, ordered=dead_letters.ordered):
        await dead_letters.dead.nack(delivery, now=later)
    await _drop(log, later)
    assert await log.rows(f"SELECT count(*) FROM messages WHERE shard_id = {log.shard_id}") == [(0,)]
    return later


async def test_what_the_log_has_no_more_is_made_of_its_dead_letter(dead_letters: DeadLetters) -> None:
    log = dead_letters.log
    later = await _give_up_and_drop(dead_letters, "a", "b")
    assert await dead_letters.redrive(now=later) == [Outcome.REDRIVEN] * 2
    await _tidy(log, 2 * HOUR)
    [delivery] = await log.pull(now=later)
    assert (texts([delivery]), delivery.attempt_number) == (["a", "b"], 1)
    assert {message.attributes for message in delivery.messages} == {"{}"}
    await log.acknowledge(delivery)
    await _tidy(log, 3 * HOUR)
    assert await log.rows("SELECT count(*) FROM straggler_batches") == [(0,)]


async def test_what_the_log_has_no_more_comes_back_in_the_order_of_its_key(ordered: DeadLetters) -> None:
    log = ordered.log
    later = await _give_up_and_drop(ordered, "a", "b", "c", key="k")
    assert await ordered.redrive(now=later) == [Outcome.REDRIVEN] * 3
    await log.publish("d", key="k", now=later)
    await _tidy(log, 2 * HOUR)
    [delivery] = await log.pull(2, ordered=True, now=later)
    assert texts([delivery]) == ["a", "b"]
    await log.nack(delivery, now=later)
    assert [texts([each]) for each in await log.pull(2, ordered=True, now=later)] == [["a", "b"]]
    assert await log.pull(ordered=True, now=later) == []


async def test_it_is_delivered_however_old_it_is_until_it_is_acked(dead_letters: DeadLetters) -> None:
    log = dead_letters.log
    await dead_letters.give_up("a", "b")
    later = log.start + 2 * HOUR
    assert await dead_letters.redrive(now=later) == [Outcome.REDRIVEN] * 2
    await _tidy(log, 2 * HOUR)
    await log.publish("c", now=later)
    await _tidy(log, timedelta(days=6))
    async with log.database.connection() as connection:
        past_retention = log.start + timedelta(days=8)
        await delete_unwanted(connection, database=log.database, now=past_retention)
    [delivery, _] = await log.pull(now=later, retention=HOUR)
    await log.nack(delivery, [1], now=later)
    again = await log.pull(now=later + HOUR / 2, retention=HOUR)
    assert sorted(texts(again)) == ["a", "b", "c"]
    await log.acknowledge_many(*again)
    assert await log.rows("SELECT count(*) FROM delivery_attempts WHERE redriven") == [(0,)]


async def test_the_cursor_of_a_pile_passes_what_is_not_chosen(
    dead_letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is far: three messages a step."""
    monkeypatch.setattr(locked_backlog, "MAX_PASSED", 3)
    await dead_letters.give_up(*"abcdefgh")
    wanted = {"ids": [(dead_letters.log.shard_id, seq) for seq in (5, 8)]}
    done = await dead_letters.step(chosen=wanted)
    assert (done.outcomes, done.next_seq) == ({}, 5), "it goes on from there"
    assert await dead_letters.redrive(chosen=wanted) == [Outcome.REDRIVEN] * 2
    assert await _acked(dead_letters.log) == ["e", "h"]
    assert sorted(await _acked(dead_letters.dead)) == ["a", "b", "c", "d", "f", "g"]


async def test_a_dead_letter_that_is_out_is_left_alone_and_one_given_back_is_taken_out(
    dead_letters: DeadLetters,
) -> None:
    await dead_letters.give_up("a", "b", "c")
    [delivery] = await dead_letters.dead.pull(2)
    await dead_letters.dead.nack(delivery, [1])
    assert await dead_letters.redrive() == [Outcome.OUTSTANDING, Outcome.REDRIVEN, Outcome.REDRIVEN]
    assert await _acked(dead_letters.log) == ["b", "c"]
    assert await dead_letters.dead.acknowledge(delivery, [0]) == set()
    assert await _acked(dead_letters.dead) == []
    assert await dead_letters.redrive() == [], "a subscription of the dead-letter topic has dealt with it"


@pytest.mark.parametrize("taken", [1, 2])
async def test_behind_what_failed_of_its_key_comes_what_is_redriven_meanwhile_though_it_is_older(
    ordered: DeadLetters, taken: int
) -> None:
    log = ordered.log
    await ordered.give_up("a", key="k")
    now = log.start + timedelta(seconds=1)
    await log.publish(*"bcde", key="k", now=now)
    [delivery] = await log.pull(ordered=True, now=now)
    await log.nack(delivery, now=now)
    [delivery] = await log.pull(1, ordered=True, now=now)
    assert await ordered.redrive(now=now) == [Outcome.REDRIVEN]
    came: list[str] = []
    while True:
        await _acknowledge_in_order(log, delivery, now)
        if not (deliveries := await log.pull(taken, ordered=True, now=now)):
            break
        [delivery] = deliveries
        came += texts(deliveries)
    assert came == ["c", "d", "e", "a"]


async def test_what_was_sought_back_is_not_doubled(dead_letters: DeadLetters) -> None:
    log = dead_letters.log
    await dead_letters.give_up("a", "b")
    await _seek_to_the_start(log)
    assert await dead_letters.redrive() == [Outcome.ALREADY_THERE] * 2
    assert await _acked(log) == ["a", "b"]
    assert await _acked(dead_letters.dead) == []


@pytest.mark.parametrize("key", ["", "k"])
async def test_what_is_out_again_after_a_seek_is_not_doubled(ordered: DeadLetters, key: str) -> None:
    """Nor is what is behind it."""
    log = ordered.log
    await ordered.give_up("a", "b", key=key)
    await _seek_to_the_start(log)
    [delivery] = await log.pull(1, ordered=True)
    assert texts([delivery]) == ["a"]
    assert await ordered.redrive() == [Outcome.ALREADY_THERE] * 2
    assert await log.rows("SELECT count(*) FROM delivery_attempts WHERE redriven") == [(0,)]
    assert await ordered.dead.pull(ordered=True) == []


async def _redriven_once(dead_letters: DeadLetters, *data: str, now: datetime) -> None:
    """These are all redriven, and delivered once each, in this order, as if for the first time."""
    log = dead_letters.log
    assert await dead_letters.redrive(now=now) == [Outcome.REDRIVEN] * len(data)
    assert await log.rows("SELECT count(*) FROM dead_letters") == [(0,)]
    deliveries = await log.pull(ordered=dead_letters.ordered, now=now)
    assert (texts(deliveries), {delivery.attempt_number for delivery in deliveries}) == ([*data], {1})
    for delivery in deliveries:
        await _acknowledge_in_order(log, delivery, now) if dead_letters.ordered else await log.acknowledge(delivery)
    assert await log.pull(ordered=dead_letters.ordered, now=now) == []
    assert await dead_letters.dead.pull(ordered=dead_letters.ordered, now=now) == []
    assert await log.rows(f"SELECT next_seq FROM cursors WHERE shard_id = {log.shard_id}") == [(len(data) + 1,)]


@pytest.mark.parametrize("where", ["ahead", "in a row", "in a row, and waiting for its key"])
@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("age", ["time to live", "retention"])
async def test_what_was_sought_back_and_has_expired_since_is_delivered(
    log: Log, age: str, key: str, where: str
) -> None:
    dead_letters = await make_dead_letters(log, ordered=bool(key))
    is_live = age == "time to live"
    failed, now = log.start, log.start + 10 * SECOND
    if not is_live:
        failed, now = log.start + timedelta(days=6), log.start + timedelta(days=8)
        async with log.database.connection() as connection:
            await make_partitions_ahead(connection, now=failed)
    await log.publish("a", "b", "c", key=key, ttl=5 * SECOND if is_live else None)
    await dead_letters.fail(now=failed)
    await _seek_to_the_start(log)
    if where != "ahead":
        deliveries = await log.pull(3 if where == "in a row" else 1, ordered=bool(key), now=failed)
        if where != "in a row":
            deliveries += await log.pull(2, ordered=bool(key), now=failed)
        for delivery in deliveries:
            await log.nack(delivery, now=failed)
    await _redriven_once(dead_letters, "a", "b", "c", now=now)


async def test_what_was_sought_back_and_is_in_the_log_no_more_is_delivered(dead_letters: DeadLetters) -> None:
    later = await _give_up_and_drop(dead_letters, "a", "b")
    await _seek_to_the_start(dead_letters.log)
    await _redriven_once(dead_letters, "a", "b", now=later)


async def test_the_cursor_passes_what_precedes_an_expired_message_that_is_redriven(
    dead_letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is far: three messages a step."""
    monkeypatch.setattr(locked_backlog, "MAX_PASSED", 3)
    log = dead_letters.log
    await log.publish(*"abcde", ttl=5 * SECOND)
    await log.publish("f")
    await log.publish(*"gh", ttl=5 * SECOND)
    await dead_letters.fail()
    await _seek_to_the_start(log)
    now = log.start + 10 * SECOND
    wanted = {"ids": [(log.shard_id, seq) for seq in (2, 8)]}
    done = await dead_letters.step(chosen=wanted, now=now)
    assert (done.outcomes, done.next_seq) == ({2: Outcome.REDRIVEN}, 8), "it goes on from there"
    assert await dead_letters.redrive(chosen=wanted, now=now) == [Outcome.REDRIVEN]
    assert sorted(await _acked(log, now=now)) == ["b", "f", "h"], "the others expire as ever"
    own = log.subscription.subscription_id
    assert await log.rows(f"SELECT status FROM delivery_attempts WHERE subscription_id = {own}") == []


async def test_what_expires_while_a_consumer_has_it_again_keeps_its_dead_letter(ordered: DeadLetters) -> None:
    """Until its ack deadline has passed."""
    log = ordered.log
    await log.publish("a", "b", key="k", ttl=5 * SECOND)
    await ordered.fail()
    await _seek_to_the_start(log)
    [delivery] = await log.pull(ordered=True)
    while_out = log.start + 6 * SECOND
    assert await ordered.redrive(now=while_out) == [Outcome.OUTSTANDING] * 2
    assert await log.rows("SELECT count(*) FROM dead_letters") == [(2,)]
    await log.nack(delivery, [1], now=while_out)
    assert await ordered.redrive(now=while_out) == [Outcome.OUTSTANDING] * 2, "one would void the other's ack id"
    await _redriven_once(ordered, "a", "b", now=log.start + ACK_DEADLINE + SECOND)


async def test_a_message_with_two_dead_letters_comes_back_once(dead_letters: DeadLetters) -> None:
    log = dead_letters.log
    await dead_letters.give_up("a")
    await _seek_to_the_start(log)
    await dead_letters.fail()
    assert await log.rows("SELECT count(*) FROM dead_letters") == [(2,)]
    assert await dead_letters.redrive() == [Outcome.REDRIVEN]
    assert await _acked(log) == ["a"]
    assert await _acked(dead_letters.dead) == []


async def test_cursors_are_locked_in_one_order_whosever_they_are(log: Log) -> None:
    """Were its own locked first, two transactions that need both cursors could wait for each other."""
    dead_letters = await make_dead_letters(await make_log(log.database, log.start, "younger"), dead=log)
    source = dead_letters.log
    assert log.shard_id < source.shard_id
    await dead_letters.give_up("a")
    async with open_transaction(log.database) as other:
        await locked_backlog.lock_backlogs(other, shard_ids=[log.shard_id], consumable=(), now=log.start)
        redriving = asyncio.create_task(dead_letters.redrive())
        await until_waiting(log.database)
        own = source.subscription.subscription_id, [source.shard_id]
        await locked_backlog.lock_backlogs(other, shard_ids=[], own=own, consumable=(), now=log.start)
    assert await redriving == [Outcome.REDRIVEN]


@pytest.mark.parametrize("rule", [True, False])
async def test_a_partition_is_not_dropped_between_the_look_and_the_commit(
    dead_letters: DeadLetters, monkeypatch: pytest.MonkeyPatch, rule: bool
) -> None:
    """Without the lock that the janitor takes too, the messages are lost."""
    log = dead_letters.log
    later = log.start + HOUR
    await log.publish("a", "b")
    async with log.database.connection() as connection:
        await make_partitions_ahead(connection, now=later)
    await dead_letters.fail(now=later)  # the dead letters stand in another partition, which alone somebody wants
    [delivery] = await dead_letters.dead.pull(now=later)
    await dead_letters.dead.nack(delivery, now=later)
    if not rule:
        monkeypatch.setattr(redrive, "HOLD_RETENTION", changed(HOLD_RETENTION, "ROW SHARE", "ACCESS SHARE"))
    async with open_transaction(log.database) as session:
        await redrive.redrive(session, dead_letters.wanted(now=later), log.attempt_ids)
        tidying = asyncio.create_task(_drop(log, later))
        await until_waiting(log.database)
    await tidying
    assert (await log.pull_texts(now=later) == ["a", "b"]) is rule
