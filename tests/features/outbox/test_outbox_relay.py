"""What applications have committed becomes messages and acks, once, whatever is killed (J7)."""

import logging
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.log.appending import Answers, append_to_shards
from broker.core.publishing import publishing_rules
from broker.core.publishing.preparation import Prepared
from broker.features.delayed.rows import append_due
from broker.features.outbox import outbox_relay as relay_module
from broker.features.outbox import rows as store
from broker.features.outbox.acknowledger import OutboxAcknowledger
from broker.features.outbox.message_publisher import OutboxPublisher
from broker.features.outbox.rows import OutboxMessage, Outcome
from broker.features.quotas.quota import ProjectQuotas
from broker.model.ack_id import ack_ids_of
from broker.model.deduplication import Deduplication
from broker.model.errors import Unavailable
from broker.model.freeze import Freeze
from broker.model.message import NewMessage
from broker.model.topic import Topic
from broker.model.topic_extensions import TopicExtensions
from broker.observability.metrics.families import OUTBOX_REFUSED, PUBLISHED_MESSAGES, REPEATED_MESSAGES
from tests.features.deduplication.test_identities import id_seqs
from tests.fixtures.application import Application, publish, settle
from tests.fixtures.broker import eventually
from tests.fixtures.log import SECOND, Log
from tests.fixtures.outbox import OutboxLog

SUBSCRIPTION = "projects/p/subscriptions/t-sub"
SEED = 20261125


async def left(outbox_log: OutboxLog) -> int:
    [(count,)] = await outbox_log.log.rows("SELECT count(*)::int FROM outbox")
    return int(count)


async def refused(outbox_log: OutboxLog) -> list[tuple[Any, ...]]:
    rows = "SELECT convert_from(data, 'UTF8'), reason FROM refused_messages ORDER BY n"
    return await outbox_log.log.rows(rows)


async def other_topic(log: Log) -> Topic:
    async with log.database.transaction() as connection:
        made = await topics.insert_topic(
            connection, topic=Topic(name="projects/p/topics/other"), shard_count=1, now=log.start
        )
    assert made is not None
    return made


async def test_what_is_committed_comes_and_what_is_rolled_back_does_not(
    outbox_log: OutboxLog, application: Application
) -> None:
    relay = outbox_log.relay()
    with application.session() as session:
        publish(session, "a", {"x": "1"}, "k")
        publish(session, "b")
        await relay.run_once()
        assert await outbox_log.came() == []
        session.commit()
        publish(session, "gone")
        session.rollback()
    await relay.run_once()
    rows = await outbox_log.log.rows("SELECT convert_from(data, 'UTF8'), attributes, ordering_key FROM messages")
    assert rows == [("a", {"x": "1"}, "k"), ("b", {}, None)]
    assert (await outbox_log.came(), await left(outbox_log)) == (["a", "b"], 0)


async def test_calls_in_the_order_in_which_they_were_made_as_far_as_they_are_seen_together(
    outbox_log: OutboxLog, application: Application
) -> None:
    relay = outbox_log.relay()
    with application.session() as one, application.session() as other:
        publish(one, "first call", None, "k")
        publish(other, "second call, seen first", None, "k")
        other.commit()
        await relay.run_once()
        publish(other, "third call", None, "k")
        one.commit()
        other.commit()
        await relay.run_once()
    assert await outbox_log.came() == ["second call, seen first", "first call", "third call"]


async def test_an_open_transaction_holds_up_nobody_and_its_messages_come_when_it_commits(
    outbox_log: OutboxLog, application: Application
) -> None:
    """Also where looks remember what they have seen: its number is below theirs."""
    relay = outbox_log.relay()
    with application.session() as slow, application.session(autocommit=True) as quick:
        publish(slow, "slow")
        for text in ("a", "b", "c"):
            publish(quick, text)
            await relay.run_once()
        assert (await outbox_log.came(), await left(outbox_log)) == (["a", "b", "c"], 0)
        publish(slow, "slow, too")
        publish(quick, "d")
        slow.commit()
        await relay.run_once()
    assert (await outbox_log.came(), await left(outbox_log)) == (["slow", "slow, too", "d"], 0)


async def test_many_are_relayed_in_bounded_transactions_in_order(
    outbox_log: OutboxLog, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_ROWS", 100)
    relay = outbox_log.relay()
    with application.session() as session:
        session.execute(
            "SELECT pubsub.publish('projects/p/topics/t', n::text::bytea) FROM generate_series(1, 350) n"
        )
    passes = 1
    while await relay.run_once():
        passes += 1
    assert passes == 4
    came: list[str] = []
    while found := await outbox_log.came():
        came += found
    assert came == [str(n) for n in range(1, 351)]


async def test_messages_that_come_later_wait_for_their_time(
    outbox_log: OutboxLog, application: Application
) -> None:
    topic = replace(outbox_log.log.topic, extensions=TopicExtensions(delay=True))
    async with outbox_log.log.database.transaction() as connection:
        await topics.update_topic(connection, topic=topic)
    with application.session() as session:
        publish(session, "later", {"broker-delay": "10s"}, "k")
        publish(session, "now", None, "k")
    await outbox_log.relay().run_once()
    assert await outbox_log.came() == ["now"]
    outbox_log.clock.moment += 10 * SECOND
    async with outbox_log.log.session() as session:
        assert await append_due(session, shard_id=outbox_log.log.shard_id, now=outbox_log.clock.moment)
    await outbox_log.log.execute("DELETE FROM delivery_attempts")
    assert await outbox_log.came() == ["later"]


async def test_repeats_are_not_stored_whichever_way_the_first_one_came(
    outbox_log: OutboxLog, application: Application
) -> None:
    """Also within one look, and across keys' shards; what was in the outbox before and is no id is put aside."""
    log, relay = outbox_log.log, outbox_log.relay()
    extensions = TopicExtensions(deduplication=Deduplication(timedelta(minutes=10)))
    with application.session() as session:
        publish(session, "c", {"broker-dedup-id": ""})
    async with log.database.transaction() as connection:
        await topics.update_topic(connection, topic=replace(log.topic, extensions=extensions))
    with application.session() as session:
        for text, name, key in (("a", "1", ""), ("again", "1", ""), ("b", "1", "k"), ("d", "2", "")):
            publish(session, text, {"broker-dedup-id": name}, key)
        publish(session, "no id")
    await relay.run_once()
    with application.session() as session:
        publish(session, "again, later", {"broker-dedup-id": "2"})
        publish(session, "no id, too")
    outbox_log.clock.moment += SECOND
    await relay.run_once()
    assert sorted(await outbox_log.came()) == ["a", "b", "d", "no id", "no id, too"]
    [(text, why)] = await refused(outbox_log)
    assert (text, why.split(":")[0]) == ("c", "INVALID_ARGUMENT")
    counts = outbox_log.counters.topic(log.topic.name)
    assert (counts[PUBLISHED_MESSAGES], counts[REPEATED_MESSAGES], await left(outbox_log)) == (5, 2, 0)
    assert await id_seqs(log, "1 over HTTP", "3 over HTTP", now=outbox_log.clock.moment) == [1, 6]
    with application.session() as session:
        publish(session, "was over HTTP", {"broker-dedup-id": "3"})
    await relay.run_once()
    assert (await outbox_log.came(), await left(outbox_log)) == (["3 over HTTP"], 0)


# --- what has changed since -------------------------------------------------------------------------------------


async def test_a_frozen_topic_keeps_what_is_staged_until_it_takes_it(
    outbox_log: OutboxLog, application: Application
) -> None:
    relay, log = outbox_log.relay(), outbox_log.log
    with application.session() as session:
        publish(session, "waits", None, "k")
        publish(session, "waits, too", None, "k")
        async with log.database.transaction() as connection:
            await topics.freeze_topic(connection, topic=log.topic, freeze=Freeze("", log.start))
    await relay.run_once()
    assert (await left(outbox_log), relay.is_awake) == (2, False)
    async with log.database.transaction() as connection:
        await topics.freeze_topic(connection, topic=log.topic, freeze=None)
    relay._messages._resources.drop(log.topic.name)  # as it is told to
    outbox_log.seconds += 1.1
    await relay.run_once()
    assert (await outbox_log.came(), await left(outbox_log)) == (["waits", "waits, too"], 0)
    assert await refused(outbox_log) == []


@pytest.mark.parametrize("how", ["frozen", "locked"])
async def test_a_topic_that_takes_nothing_holds_up_no_other_however_much_is_staged_for_it(
    outbox_log: OutboxLog, application: Application, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Neither what is in the outbox for others behind it, nor how much they may write to the outbox."""
    monkeypatch.setattr(store, "MAX_ROWS", 10)
    relay, log = outbox_log.relay(), outbox_log.log
    other = await other_topic(log)
    with application.session() as session, psycopg.connect(application.admin_url) as locking:
        for n in range(25):
            publish(session, f"{n}")
        if how == "frozen":
            async with log.database.transaction() as connection:
                await topics.freeze_topic(connection, topic=log.topic, freeze=Freeze("", log.start))
        else:
            locking.execute("SELECT FROM broker.shards WHERE shard_id = %s FOR UPDATE", [log.shard_id])
        last = publish(session, "does not wait", topic=other.name)
        session.commit()
        assert await relay.run_once()
        await relay.run_once()
        counted = f"SELECT count(*)::int FROM messages WHERE shard_id = {other.shard_ids[0]}"
        assert await log.rows(counted) == [(1,)]
        outbox_log.seconds += 0.6
        publish(session, "nor does this", topic=other.name)
        session.commit()
        await relay.run_once()
        assert await log.rows(counted) == [(2,)]
        assert await log.rows("SELECT relayed_to FROM outbox_progress") == [(last + 1,)]
    async with log.database.transaction() as connection:
        await topics.freeze_topic(connection, topic=log.topic, freeze=None)
    relay._messages._resources.drop(log.topic.name)
    outbox_log.seconds += 0.6
    while await left(outbox_log):
        await relay.run_once()
    assert await outbox_log.came() == [f"{n}" for n in range(25)]


async def test_a_project_with_very_much_staged_delays_no_other(
    outbox_log: OutboxLog, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its messages, nor how much it may write to the outbox; and the order of the first one is kept."""
    monkeypatch.setattr(store, "MAX_ROWS", 10)
    relay, log = outbox_log.relay(), outbox_log.log
    application.grant("projects/other")
    async with log.database.transaction() as connection:
        other = await topics.insert_topic(
            connection, topic=Topic(name="projects/other/topics/t"), shard_count=1, now=log.start
        )
    assert other is not None
    counted = f"SELECT count(*)::int FROM messages WHERE shard_id = {other.shard_ids[0]}"
    with application.session() as session:
        for n in range(95):
            publish(session, f"{n}")
        last = publish(session, "does not wait", topic=other.name)
        session.commit()
        assert await relay.run_once()
        assert await log.rows(counted) == [(0,)], "nobody is known to be behind"
        outbox_log.seconds += 0.6
        assert await relay.run_once()
        assert await log.rows(counted) == [(1,)]
        noted = "SELECT behind, behind_to < relayed_to, relayed_to FROM outbox_progress"
        assert await log.rows(noted) == [(["projects/p"], True, last)]
    while await relay.run_once():
        outbox_log.seconds += 0.6
    assert await log.rows("SELECT behind, relayed_to FROM outbox_progress") == [([], last)]
    came: list[str] = []
    while found := await outbox_log.came():
        came += found
    assert came == [f"{n}" for n in range(95)]


async def test_what_a_deleted_topic_was_to_get_is_put_aside_even_if_there_is_another_of_its_name(
    outbox_log: OutboxLog, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    log = outbox_log.log
    with application.session() as session:
        publish(session, "too late")
    async with log.database.transaction() as connection:
        await topics.delete_topic(connection, topic=log.topic)
        await topics.insert_topic(connection, topic=Topic(name=log.topic.name), shard_count=1, now=log.start)
    with application.session() as session:
        publish(session, "for the new one")
    with caplog.at_level(logging.WARNING):
        await outbox_log.relay().run_once()
    assert await log.rows("SELECT convert_from(data, 'UTF8') FROM messages") == [("for the new one",)]
    [(text, why)] = await refused(outbox_log)
    assert (text, why) == ("too late", "NOT_FOUND: Topic not found: it was deleted (resource=t).")
    assert "are put aside" in caplog.text
    assert outbox_log.counters.process[OUTBOX_REFUSED["message"]] == 1
    async with log.database.connection() as connection:
        assert await store.delete_refused_messages(connection, now=log.start + timedelta(days=6)) == 0
        assert await store.delete_refused_messages(connection, now=log.start + timedelta(days=8)) == 1


async def test_a_topic_that_got_a_schema_takes_nothing_that_was_staged_before(
    outbox_log: OutboxLog, application: Application
) -> None:
    with application.session() as session:
        publish(session, "unchecked")
    await outbox_log.log.execute("UPDATE topics SET schema_id = 7, schema_encoding = 'JSON'")
    await outbox_log.relay().run_once()
    [(_, why)] = await refused(outbox_log)
    assert why == "FAILED_PRECONDITION: Topic has a schema, which SQL cannot check (resource=t)."
    assert await left(outbox_log) == 0


async def test_one_that_the_database_does_not_take_is_put_aside_and_the_others_come(
    outbox_log: OutboxLog, application: Application
) -> None:
    log = outbox_log.log
    with application.session() as session:
        for n in range(20):
            publish(session, f"{n}")
    await log.refuse("7")
    relay = outbox_log.relay()
    while await left(outbox_log):
        await relay.run_once()
    assert sorted(await outbox_log.came(), key=int) == [f"{n}" for n in range(20) if n != 7]
    [(text, why)] = await refused(outbox_log)
    assert (text, why.split(":")[0]) == ("7", "INTERNAL")


async def test_a_log_that_is_locked_does_not_hold_up_others(
    outbox_log: OutboxLog, application: Application
) -> None:
    log = outbox_log.log
    other = await other_topic(log)
    with application.session() as session:
        publish(session, "a")
        publish(session, "b", topic="projects/p/topics/other")
    relay = outbox_log.relay()
    with psycopg.connect(application.admin_url) as locking:
        locking.execute("SELECT FROM broker.shards WHERE shard_id = %s FOR UPDATE", [log.shard_id])
        await relay.run_once()
        assert await log.rows(f"SELECT count(*)::int FROM messages WHERE shard_id = {other.shard_ids[0]}") == [(1,)]
    outbox_log.seconds += 1.1
    await relay.run_once()
    assert await outbox_log.came() == ["a"]


@pytest.mark.parametrize("error", [Unavailable("The server cannot be reached."), ValueError("a defect")])
async def test_a_topic_that_fails_holds_up_no_other_and_is_reported_once(
    outbox_log: OutboxLog, application: Application, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """A defect used to end the relay, which began with the same topic again."""
    log = outbox_log.log
    other = await other_topic(log)

    class Failing(OutboxPublisher):
        async def relay(self, found: Sequence[OutboxMessage]) -> Outcome:
            if found[0].topic == log.topic.name:
                raise error
            return await super().relay(found)

    relay = outbox_log.relay(messages=Failing)
    with caplog.at_level(logging.WARNING):
        for seconds, body in enumerate("abc"):
            with application.session() as session:
                publish(session, f"failing {body}")
                publish(session, body, topic="projects/p/topics/other")
            outbox_log.seconds = 1.1 * seconds
            await relay.run_once()
            found = await log.rows(f"SELECT count(*)::int FROM messages WHERE shard_id = {other.shard_ids[0]}")
            assert found == [(seconds + 1,)]
    [reported] = [line for line in caplog.messages if "is not taken up" in line]
    assert reported.startswith(
        f"what is staged for {log.topic.name} is not taken up, and is tried again and again: "
    )
    assert await left(outbox_log) == 3


async def test_one_that_cannot_be_encoded_is_put_aside_and_the_others_come(
    outbox_log: OutboxLog, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a defect of ours, which would hold up its topic for ever."""
    with application.session() as session:
        for body in "abc":
            publish(session, body)
    real = publishing_rules.check_messages

    def defective(messages: Sequence[NewMessage]) -> None:
        if messages[0].data == b"b":
            raise ValueError("a defect")
        real(messages)

    monkeypatch.setattr(publishing_rules, "check_messages", defective)
    await outbox_log.relay().run_once()
    assert await outbox_log.came() == ["a", "c"]
    assert await refused(outbox_log) == [("b", "INTERNAL: ValueError: a defect")]


async def test_where_nothing_could_be_taken_up_in_time_it_says_of_what(
    outbox_log: OutboxLog, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the database stands still: the worker's log has a sentence, and no stack of calls."""
    log = outbox_log.log
    with application.session() as session:
        publish(session, "a")
    relay = outbox_log.relay()
    with psycopg.connect(application.admin_url) as locking:
        locking.execute("SELECT FROM broker.topics FOR UPDATE")
        locking.execute("LOCK broker.message_batches, broker.shards IN ACCESS EXCLUSIVE MODE")
        with monkeypatch.context() as patch:
            patch.setattr(relay_module, "_PATIENCE_SECONDS", 0.2)
            with pytest.raises(Unavailable, match=f"What is staged for {log.topic.name} was not taken up in"):
                await relay.run_once()
    outbox_log.seconds += 1.1

    async def came() -> list[str]:
        await relay.run_once()  # which passes what a session that ends just now has locked
        return await outbox_log.came()

    assert await eventually(came) == ["a"]


# --- acks -------------------------------------------------------------------------------------------------------


async def test_acks_and_nacks_count_once_their_transaction_has_committed(
    outbox_log: OutboxLog, application: Application
) -> None:
    relay, log = outbox_log.relay(), outbox_log.log
    await log.publish("a", "b", "c")
    [delivery] = await log.pull()
    ids = ack_ids_of(log.subscription.subscription_id, delivery)
    with application.session() as session:
        settle(session, SUBSCRIPTION, ids[0])
        session.rollback()
        await relay.run_once()
        assert await log.attempts() == [("delivering", 1, "111")]
        settle(session, SUBSCRIPTION, ids[0])
        settle(session, SUBSCRIPTION, ids[1], how="nack")
    await relay.run_once()
    assert await left(outbox_log) == 0
    assert await log.pull_texts() == ["b"]
    assert await log.pull_texts(now=log.start + 11 * SECOND) == ["b", "c"]


async def test_an_ack_that_comes_too_late_does_nothing(outbox_log: OutboxLog, application: Application) -> None:
    relay, log = outbox_log.relay(), outbox_log.log
    await log.publish("a")
    [delivery] = await log.pull()
    [again] = await log.pull(now=log.start + 11 * SECOND)
    with application.session() as session:
        settle(session, SUBSCRIPTION, *ack_ids_of(log.subscription.subscription_id, delivery))
    await relay.run_once()
    assert await log.pull_texts(now=log.start + 22 * SECOND) == ["a"]
    assert again.messages[0].data == b"a"


async def test_what_names_nothing_is_dropped_and_told_and_the_others_count(
    outbox_log: OutboxLog, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    """An id that somebody has made up passes SQL, which has no checksum."""
    relay, log = outbox_log.relay(), outbox_log.log
    await log.publish("a")
    [delivery] = await log.pull()
    [good] = ack_ids_of(log.subscription.subscription_id, delivery)
    with application.session() as session:
        settle(session, SUBSCRIPTION, good[:20] + "A" * 20)
        settle(session, SUBSCRIPTION, good)
    with caplog.at_level(logging.WARNING):
        await relay.run_once()
    assert f"acknowledgements of transactions for {SUBSCRIPTION} are dropped" in caplog.text
    assert (await log.attempts(), await left(outbox_log)) == ([], 0)


async def test_acks_of_a_subscription_that_was_deleted_are_dropped(
    outbox_log: OutboxLog, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    log = outbox_log.log
    await log.publish("a")
    [delivery] = await log.pull()
    with application.session() as session:
        settle(session, SUBSCRIPTION, *ack_ids_of(log.subscription.subscription_id, delivery))
    async with log.database.transaction() as connection:
        await subscriptions.delete_subscription(connection, subscription_id=log.subscription.subscription_id)
    with caplog.at_level(logging.WARNING):
        await outbox_log.relay().run_once()
    assert "it was deleted" in caplog.text
    assert await left(outbox_log) == 0


# --- quotas, notes, deaths --------------------------------------------------------------------------------------


async def test_what_is_relayed_is_taken_from_the_projects_quota_and_never_refused(
    outbox_log: OutboxLog, application: Application
) -> None:
    outbox_log.quotas = ProjectQuotas(limits={"publishMessages": 10})
    relay = outbox_log.relay()
    with application.session() as session:
        for n in range(30):
            publish(session, f"{n}")
    await relay.run_once()
    assert len(await outbox_log.came()) == 30
    gauge = outbox_log.measured.publishing("projects/p", "")
    with pytest.raises(Exception, match="publishMessages"):
        gauge.check(outbox_log.measured.ticks())


async def test_numbers_that_were_rolled_back_do_not_count_against_the_bound(
    outbox_log: OutboxLog, application: Application
) -> None:
    relay = outbox_log.relay()
    await outbox_log.log.execute("SELECT setval('outbox_n_seq', 300000)")
    with application.session(autocommit=True) as session:
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
            publish(session, "x")
        await relay.run_once()
        publish(session, "x")


class Dying(OutboxPublisher):
    """Its process dies now and then: before the messages are appended, before the commit, or after it."""

    dice = random.Random(SEED)
    deaths = 0

    def _report(self, prepared: Prepared, found: Sequence[OutboxMessage], answers: Answers) -> None:
        self._die()
        super()._report(prepared, found, answers)

    @classmethod
    def _die(cls) -> None:
        if cls.dice.randrange(3) == 0:
            cls.deaths += 1
            raise Unavailable("killed")


class DyingAcks(OutboxAcknowledger):
    """So does its process: between what it does and its end."""

    async def _settle(self, *what: Any, **how: Any) -> None:
        await super()._settle(*what, **how)
        Dying._die()


@pytest.mark.parametrize("ruled", [True, False])
async def test_each_comes_once_whoever_dies_and_acks_may_be_made_twice(
    outbox_log: OutboxLog, application: Application, monkeypatch: pytest.MonkeyPatch, ruled: bool
) -> None:
    """Without the rule (who appends deletes, in one transaction) some come twice."""
    real = store.append_outbox_messages
    if not ruled:

        async def careless(connection: Any, **what: Any) -> Any:
            answers = await append_to_shards(connection, batches=what["batches"], now=what["now"])
            Dying._die()
            deleted = await real(connection, **what | {"batches": {}})
            return None if deleted is None else answers

        monkeypatch.setattr("broker.features.outbox.message_publisher.append_outbox_messages", careless)
    relays = [outbox_log.relay(messages=Dying, acks=DyingAcks) for _ in range(2)]
    log, came = outbox_log.log, Counter[str]()
    await log.publish(*(f"given {n}" for n in range(10)))
    [delivery] = await log.pull()
    ids = ack_ids_of(log.subscription.subscription_id, delivery)
    with application.session() as session:
        for n in range(10):
            publish(session, f"{n}")
            settle(session, SUBSCRIPTION, ids[n])
            session.commit() if n % 3 else session.rollback()
            for relay in relays:
                try:
                    await relay.run_once()
                except Unavailable:
                    relay.forget()
        for relay in relays * 20:
            relay.forget()  # or a topic that has failed is passed by for a second
            with suppress(Unavailable):
                await relay.run_once()
    came.update(await outbox_log.came())
    assert Dying.deaths > 2
    twice = [text for text, count in came.items() if count > 1]
    assert bool(twice) is not ruled
    assert set(came) == {f"{n}" for n in range(10) if n % 3}
    assert await left(outbox_log) == 0
    again = await log.pull_texts(now=log.start + 11 * SECOND)
    assert [text for text in again if text.startswith("given")] == [f"given {n}" for n in range(10) if not n % 3]
