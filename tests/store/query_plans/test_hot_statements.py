"""The plan of every hot statement, as PostgreSQL makes it for the statement that the store really sent.

The store's functions run against tables of some size; then each statement that the session has prepared is
explained with the very parameters it was sent with, once by a custom plan and once by a generic one.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from psycopg import sql

from broker.domain.dead_letter_list import LetterPage
from broker.domain.journal import NOBODY, Event, Journal, JournalMode, Told, rows_of
from broker.domain.log_page import LogPage, LogPosition
from broker.domain.log_walk import LogWalk
from broker.domain.message import NewMessage
from broker.domain.push_replay import Meant, Missed
from broker.domain.redrive import END_OF_TIME, EVER, Chosen, Unrecorded
from broker.domain.retained_bytes import Tally, span_of
from broker.domain.retry_policy import RetryPolicy
from broker.domain.standing_page import StandingPage
from broker.domain.topic_page import ORDERS, TopicPage
from broker.store.claim import bodies, claim, due, expired, fresh, ordered, waiting, write
from broker.store.claim.request import MAX_CLAIMANTS
from broker.store.driver.database import Database
from broker.store.driver.statements import BEGIN, COMMIT, Statement
from broker.store.log import (
    bringing_back,
    copying,
    delivery_attempts,
    discard,
    edits,
    journal,
    letter_groups,
    log_walk,
    messages,
    pending_rows,
    piles,
    purging,
    push_replay,
    redrive,
    resend,
    retained_bytes,
    shards,
    unrecorded,
)
from broker.store.log.delivery_attempts import (
    acknowledge_exactly_once,
    acknowledge_in_order,
    read_open_attempts,
    release_attempts,
)
from broker.store.log.partitions import make_partitions_ahead
from broker.store.log.scheduled_messages import encode_scheduled
from broker.store.looking import (
    dead_letters,
    fates,
    figures,
    lag,
    published,
    readers,
    standing_messages,
    topic_messages,
    traces,
)
from broker.store.resources import filters
from tests.fixtures.database import begin
from tests.fixtures.dead_letters import Letters, make_letters
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, make_log
from tests.fixtures.push_log import PushLog
from tests.store.interleavings.steps import execute
from tests.store.query_plans.recorder import Recorder

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARTITIONS = 6
EMPTY_PARTITIONS = 6  # and known to be so: the planner thinks that reading them costs nothing
MESSAGES_PER_PARTITION = 5_000
BODY_PATH = 'exists($[1]."a" ? (@.type() == "number" && @ > 5))'
HOT_TABLES = re.compile(r"messages|scheduled_messages|delivery_attempts|cursors|shards|straggler_batches")

# What makes messages of a batch, in the order of their sequences.
EACH_MESSAGE = {"Nested Loop", "Function Scan"}

INDEX_SCANS = {"Index Scan", "Index Only Scan"}

# Statement -> the indexes that it may use on each hot table (a partition's index goes by its suffix).
EXPECTED = {
    "claim._LOCK_CURSORS": {"cursors_pkey"},
    "journal._INSERT_JOURNAL": set(),
    "journal._LOCK_TOLD_ATTEMPTS": {"delivery_attempts_pkey"},
    "claim._LOCK_FREE_CURSORS": {"cursors_pkey"},
    "claim._READ_CURSORS": {"cursors_pkey"},
    "due._LOCK_DUE_ATTEMPTS": {"delivery_attempts_due_idx", "delivery_attempts_pkey", "cursors_pkey"},
    "due._FIND_DUE_MESSAGES": {"_pkey", "straggler_batches_pkey"},
    "due._FIND_STRAGGLERS_OF_KEYS": {"cursors_pkey", "straggler_batches_pkey"},
    "due._FIND_MESSAGES_OF_KEYS": {"cursors_pkey", "_ordering_key_publish_time_idx"},
    "fresh._READ_FRESH_BATCHES": {"cursors_pkey", "_pkey"},
    "fresh._FIND_FRESH_BATCHES": {"cursors_pkey", "_pkey"},
    "fresh._FIND_FRESH_MESSAGES": {"cursors_pkey", "_pkey", "delivery_attempts_ordering_key_idx"},
    "fresh._FIND_FRESH_MESSAGES_BY_BODY": {"cursors_pkey", "_pkey", "delivery_attempts_ordering_key_idx"},
    "ordered._INSERT_ORDERED_RUNS": set(),
    "ordered._REPLACE_ORDERED_RUNS": {"delivery_attempts_pkey"},
    "ordered._DELETE_ORDERED_RUNS": {"delivery_attempts_pkey"},
    "ordered._KEEP_ACKS": {"delivery_attempts_pkey"},
    "bodies._READ_BATCHES": {"_pkey", "straggler_batches_pkey"},
    "waiting._READ_WAITING_SINCE": {"cursors_pkey", "_pkey", "delivery_attempts_due_idx"},
    "expired._INSERT_GONE": {"retracted_messages_pkey"},
    "expired._INSERT_EXPIRED": {"_pkey"},
    "expired._INSERT_EXPIRED_OF_KEYS": {"_ordering_key_publish_time_idx"},
    "write._REPLACE_ATTEMPTS": {"delivery_attempts_pkey"},
    "write._MARK_REDRIVEN": {"delivery_attempts_pkey"},
    "write._MOVE_CURSORS": {"cursors_pkey"},
    "write._READ_NEXT_DELIVERY_ATS": {"delivery_attempts_due_idx"},
    "write._INSERT_DELIVERY_ATTEMPTS": set(),
    "write._INSERT_GIVEN_UP": set(),
    "delivery_attempts._ACKNOWLEDGE": {"delivery_attempts_pkey"},
    "delivery_attempts._ACKNOWLEDGE_EXACTLY_ONCE": {"delivery_attempts_pkey"},
    "delivery_attempts._ACKNOWLEDGE_IN_ORDER": {"delivery_attempts_pkey"},
    "delivery_attempts._MODIFY_ACK_DEADLINE": {"delivery_attempts_pkey"},
    "delivery_attempts._MODIFY_ORDERED_DEADLINE": {"delivery_attempts_pkey"},
    "delivery_attempts._MERGE_PARTS": {"delivery_attempts_pkey"},
    "delivery_attempts._RELEASE_ATTEMPTS": {"delivery_attempts_pkey"},
    "delivery_attempts._READ_OPEN_ATTEMPTS": {"delivery_attempts_pkey"},
    "filters._SCAN_NEWEST": {"_pkey"},
    "topic_messages._SCAN_NEWEST": {"_pkey"},
    "topic_messages._SCAN_OLDEST": {"_pkey"},
    "fates._FIND_MESSAGE": {"shards_pkey", "_pkey", "straggler_batches_pkey"},
    "fates._READ_FATES": {"cursors_pkey", "delivery_attempts_pkey", "delivery_attempts_ordering_key_idx"},
    "fates._COUNT_BEFORE": {"cursors_pkey", "_pkey"},
    "lag._FIND_LAGGING": {"subscriptions_name_key", "cursors_pkey", "shards_pkey", "delivery_attempts_due_idx"},
    "lag._READ_LAG": {
        "cursors_pkey",
        "shards_pkey",
        "delivery_attempts_pkey",
        "_pkey",
        "straggler_batches_pkey",
        "_ordering_key_publish_time_idx",
        "delivery_attempts_ordering_key_idx",
    },
    "readers._COUNT_STILL_OUT": {"delivery_attempts_pkey"},
    "traces._FIND_TRACES": {"delivery_attempts_pkey", "_pkey"},
    "published._READ_SHARD_ENDS": {"shards_pkey"},
    "published._LIST_PUBLISHED": {"_pkey"},
    "standing_messages._LIST_ATTEMPTS": {"delivery_attempts_pkey"},
    "standing_messages._LIST_HELD": {"delivery_attempts_pkey", "cursors_pkey", "_ordering_key_publish_time_idx"},
    "standing_messages._LIST_WAITING": {"cursors_pkey", "_pkey", "delivery_attempts_ordering_key_idx"},
    "standing_messages._READ_DUE_MESSAGES": {"_pkey", "straggler_batches_pkey"},
    "dead_letters._LIST_DEAD_LETTERS": {"dead_letters_source_idx", "_pkey", "straggler_batches_pkey"},
    "dead_letters._READ_PILES": {"shards_pkey", "ix_subscriptions_topic_id", "cursors_pkey"},
    "dead_letters._READ_PILED": {"delivery_attempts_pkey"},
    "messages._TAKE_SEQUENCES": {"shards_pkey"},
    "messages._APPEND_MESSAGES": {"shards_pkey"},
    "messages._TAKE_ID_SEQS": {"shards_pkey"},
    "messages._INSERT_SCHEDULED_MESSAGES": {"shards_pkey"},
    "retained_bytes._READ_KEPT": {
        "ix_shards_topic_id",
        "cursors_pkey",
        "delivery_attempts_pkey",
        "delivery_attempts_due_idx",
        "delivery_attempts_ordering_key_idx",
    },
    "retained_bytes._READ_PROJECTS": set(),
    "retained_bytes._SUM_BATCHES": {"_pkey"},
    "retained_bytes._SUM_SCHEDULED": {"scheduled_messages_pkey"},
    "shards._READ_HEADS": {"shards_pkey"},
    "copying._READ_ENDS": {"shards_pkey", "_pkey"},
    "copying._SCAN_OLDEST": {"_pkey"},
    "redrive._HOLD_RETENTION": set(),
    "redrive._READ_LETTER_SHARDS": set(),
    "redrive._READ_LETTERS": {"_pkey", "straggler_batches_pkey"},
    "redrive._FIND_LOGGED": {"_pkey", "straggler_batches_pkey"},
    "redrive._COPY_LETTERS": {"_pkey", "straggler_batches_pkey"},
    "redrive._FORGET_LETTERS": set(),
    "redrive._COUNT_LETTERS": set(),
    "redrive._LIST_PILES": {"cursors_pkey"},
    "letter_groups._READ_BODIES": {"_pkey", "straggler_batches_pkey"},
    "log_walk._FIND_MATCHING": {"_pkey", "straggler_batches_pkey"},
    "purging._READ_OLDEST_STANDING": {"cursors_pkey", "delivery_attempts_pkey"},
    "push_replay._HOLD_RETENTION": set(),
    "push_replay._FIND_EXPIRED": {"delivery_journal_time_idx"},
    "push_replay._LOCATE_MESSAGES": {"shards_pkey", "_pkey", "straggler_batches_pkey"},
    "push_replay._FIND_LAST_TOLD": {"delivery_journal_pkey"},
    "push_replay._FIND_GIVEN_UP": {"dead_letters_source_idx"},
    "resend._HOLD_RETENTION": set(),
    "resend._LOCATE_MESSAGES": {"shards_pkey", "_pkey", "straggler_batches_pkey"},
    "resend._READ_DUE_MESSAGES": {"_pkey", "straggler_batches_pkey"},
    "resend._READ_HEADS": {"shards_pkey"},
    "bringing_back._LOWER_FIRST_SEQ": {"cursors_pkey"},
    "redrive._NAME_PILES": {"cursors_pkey"},
    "unrecorded._FIND_UNRECORDED": {"_pkey", "straggler_batches_pkey"},
    "unrecorded._READ_RECORDED_SINCE": set(),
    "unrecorded._OPEN_SHARD": {"shards_pkey"},
    "edits._OPEN_SHARD": {"shards_pkey"},
    "edits._FORGET_LETTERS": set(),
    "discard._LOCATE_MESSAGES": {"shards_pkey", "_pkey", "straggler_batches_pkey"},
    "discard._FIND_LETTERS": {"_pkey", "straggler_batches_pkey"},
    "discard._NAME_PILES": {"cursors_pkey"},
    "discard._READ_LETTERS": {"_pkey", "straggler_batches_pkey"},
    "piles._LOCK_PILES": {"cursors_pkey"},
    "piles._ACKNOWLEDGE": {"delivery_attempts_pkey"},
    "piles._LOCK_HOLDING_ATTEMPTS": {"delivery_attempts_pkey"},
    "piles._FIND_PASSED": {"cursors_pkey", "_pkey"},
    "piles._REPLACE_ATTEMPTS": {"delivery_attempts_pkey"},
    "piles._REPLACE_ORDERED_RUNS": {"delivery_attempts_pkey"},
    "piles._STOP_WAITING": {"delivery_attempts_ordering_key_idx"},
    "piles._MOVE_CURSORS": {"cursors_pkey"},
    "pending_rows._INSERT_PENDING_ATTEMPTS": set(),
    "pending_rows._LOCK_KEYS": {"delivery_attempts_ordering_key_idx"},
    "pending_rows._HOLD_KEYS": set(),
}
_MODULES = {
    "bringing_back": bringing_back,
    "log_walk": log_walk,
    "push_replay": push_replay,
    "claim": claim,
    "copying": copying,
    "due": due,
    "fates": fates,
    "fresh": fresh,
    "ordered": ordered,
    "bodies": bodies,
    "expired": expired,
    "waiting": waiting,
    "write": write,
    "delivery_attempts": delivery_attempts,
    "filters": filters,
    "journal": journal,
    "lag": lag,
    "dead_letters": dead_letters,
    "messages": messages,
    "pending_rows": pending_rows,
    "piles": piles,
    "published": published,
    "readers": readers,
    "standing_messages": standing_messages,
    "topic_messages": topic_messages,
    "traces": traces,
    "purging": purging,
    "redrive": redrive,
    "resend": resend,
    "letter_groups": letter_groups,
    "discard": discard,
    "edits": edits,
    "retained_bytes": retained_bytes,
    "shards": shards,
    "unrecorded": unrecorded,
}


def statement_of(name: str) -> Statement:
    module, constant = name.split(".")
    statement: Statement = getattr(_MODULES[module], constant)
    return statement


async def _fill(log: Log) -> None:
    """Other topics and subscriptions with messages and attempts of their own, in several partitions.

    What the planner knows of them stays: autovacuum would find out how little the test puts into some.
    """
    for table in ("shards", "delivery_attempts", "cursors", "straggler_batches"):
        await log.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    async with log.database.connection() as connection:
        for hours in range(PARTITIONS + EMPTY_PARTITIONS):
            await make_partitions_ahead(connection, now=log.start + timedelta(minutes=10 * hours))
    await log.execute(
        "INSERT INTO shards (topic_id, ordinal, last_publish_time)"
        " SELECT 1000 + n, 0, now() FROM generate_series(1, 2000) AS n"
    )
    await log.execute(
        f"""
        INSERT INTO message_batches (shard_id, publish_time, last_seq, count, size, data)
        SELECT 1 + n % 20, now() + p * interval '10 minutes' - interval '9 minutes', p * 100000 + n, 1, 3,
               '{{"\\\\x00"}}'
        FROM generate_series(0, {PARTITIONS - 1}) AS p, generate_series(1, {MESSAGES_PER_PARTITION}) AS n
        WHERE 1 + n % 20 <> {log.shard_id}
        """
    )
    await log.execute(
        """
        INSERT INTO straggler_batches
        SELECT 1 + n % 20, now() - n * interval '1 second', n, 1, 3, NULL, NULL, '{"\\\\x00"}'
        FROM generate_series(1, 9000) AS n
        """
    )
    own = log.subscription.subscription_id
    await log.execute(
        f"""
        INSERT INTO delivery_attempts
        SELECT 1 + n % 20, {own} + n % 40, n, 0, 'delivering', 1, now() + n * interval '1 hour', now(),
               '{{[1,9)}}', B'11111111', NULL, now(), now()
        FROM generate_series(1, 20000) AS n
        """
    )
    await log.execute(
        "INSERT INTO cursors SELECT 1 + n % 20, 10000 + n, now(), 1, now() FROM generate_series(1, 5000) AS n"
    )
    for table in ("shards", "message_batches", "delivery_attempts", "cursors", "straggler_batches"):
        await log.execute(f"ANALYZE {table}")


async def _run_every_statement(log: Log, session: Any) -> None:
    later = log.start + ACK_DEADLINE
    await log.publish("large", connection=session)
    await log.acknowledge((await log.pull(connection=session, max_bytes=1000))[0], connection=session)
    await log.publish("a", "b", "c", connection=session)
    [delivery] = await log.pull(connection=session)
    await log.modify_ack_deadline(delivery, [0], log.start + SECOND, connection=session)
    await log.merge_parts(delivery, connection=session)
    told = Told(Journal(mode=JournalMode.ALL))
    names = [log.name(delivery)]
    async with journal.written_down(
        session, shard_id=log.shard_id, attempts=names, told=True, clock=lambda: later
    ) as ledger:
        await log.acknowledge(delivery, [1], connection=session)
        assert ledger is not None
        ledger.acked([(names[0], {1})], [], {names[0]: [({1}, told)]})
    await log.pull(1, now=later, connection=session)
    await log.pull(now=later, connection=session)
    await log.pull(now=later, connection=session)  # finds nothing
    await log.publish("past its time", ttl=SECOND, connection=session)
    await log.claim(now=later, connection=session, gives_up_expired=True)
    await log.pull(now=later, connection=session, filter_path='$.a == "b"')
    await log.pull(now=later, connection=session, filter_path="exists($)", body_path=BODY_PATH)
    name = log.name(delivery)
    await acknowledge_exactly_once(session, shard_id=log.shard_id, acks={name: {0}}, now=later)
    await read_open_attempts(session, shard_id=log.shard_id, attempts=[name], now=later)
    await readers.count_still_out(session, attempts=[name], now=later)
    await copying.read_ends(session, shard_ids=[log.shard_id], since=log.start, until=later)
    asked_of = {log.subscription.subscription_id: log.start - timedelta(hours=1)}
    await waiting.read_waiting_since(session, shard_id=log.shard_id, retained_since=asked_of, now=later)
    await traces.find_traces(session, shard_id=log.shard_id, attempts=[name])
    await _list_messages(log, session, later)
    await release_attempts(
        session,
        shard_id=log.shard_id,
        subscription_id=log.subscription.subscription_id,
        attempt_ids=[delivery.attempt_id],
        now=later,
    )
    await _run_ordered_statements(log, session, later)
    await filters.test_filter(
        session,
        shard_ids=[log.shard_id],
        filter_path='$.a == "b"',
        body_path=BODY_PATH,
        retained_since=log.start - timedelta(hours=1),
        page=LogPage(100),
    )
    for order in ORDERS:
        asked = topic_messages.Asked(
            shard_ids=[log.shard_id],
            filter_path='$.a == "b"',
            retained_since=log.start - timedelta(hours=1),
            page=TopicPage(10, order, ordering_key="k"),
        )
        await topic_messages.list_topic_messages(session, asked)
    await lag.find_lagging(session, after="projects/p/subscriptions/", before="projects/p/subscriptions0")
    await lag.read_lag(session, subscriptions=[log.subscription], now=later)
    await figures.read_retained(session, max_topics=1_000)
    await shards.read_heads(session, shard_ids=[log.shard_id])
    await retained_bytes.read_projects(session)
    await retained_bytes.read_kept(session, projects=["projects/p"], now=later)
    await retained_bytes.sum_batches(session, {log.shard_id: Tally(span_of(log.start))}, limit=10)
    await retained_bytes.sum_scheduled(session, {log.shard_id: 0}, limit=10)
    await _list_dead_letters(log, session, later)
    await _run_push_statements(log, session)
    to_come = encode_scheduled([NewMessage(data=b"later")], [later])
    await messages.append_messages(session, shard_id=log.shard_id, requests=[to_come], now=log.start)


async def _list_dead_letters(log: Log, session: Any, now: datetime) -> None:
    await log.execute(
        "INSERT INTO dead_letters SELECT 1 + n % 20, now() - n * interval '1 second', n, 1 + n % 20, n, now(), 't',"
        f" {log.subscription.subscription_id}, 's', 5, 'nack' FROM generate_series(1, 20000) AS n"
    )
    await log.execute("ANALYZE dead_letters")
    asked = dead_letters.AskedLetters(
        subscription_id=log.subscription.subscription_id,
        shard_ids=[log.shard_id],
        filter_path=None,
        body_path=None,
        page=LetterPage(10),
        now=now,
    )
    await dead_letters.list_dead_letters(session, asked)
    where = {"shard_id": log.shard_id, "subscription_id": log.subscription.subscription_id, "max_rows": 10}
    await session.run((dead_letters._READ_PILED, where))
    await session.run((dead_letters._READ_PILES, {"shard_ids": [log.shard_id]}))


async def _list_messages(log: Log, session: Any, later: datetime) -> None:
    asked = standing_messages.Asked(
        subscription_id=log.subscription.subscription_id,
        shard_ids=[log.shard_id],
        ordered=True,
        retained_since=log.start - timedelta(hours=1),
        filter_path='$.a == "b"',
        log_path='$.a == "b"',
        page=StandingPage(100),
        now=later,
    )
    await standing_messages.list_messages(session, asked)
    message = await fates.read_message(session, shard_id=log.shard_id, id_seq=1)
    assert message is not None
    [facts] = await fates.read_facts(session, message=message, subscriptions=[log.subscription], now=later)
    await fates.count_before(session, facts, now=later)
    ends = await published.read_shard_ends(session, shard_ids=[log.shard_id])
    await published.list_published(session, after=ends[log.shard_id], filter_path='$.a == "b"')


async def _run_ordered_statements(log: Log, session: Any, later: datetime) -> None:
    for text in ("k1", "k2", "k3"):
        await log.publish(text, now=later, connection=session, key="k")
    first, *_ = await log.pull(1, now=later, connection=session, ordered=True, exactly_once=True)
    await log.nack(first, now=later, connection=session)
    retry_policy = RetryPolicy(minimum_backoff=SECOND, maximum_backoff=SECOND)
    options: dict[str, Any] = {"connection": session, "ordered": True, "exactly_once": True}
    [first] = await log.pull(1, now=later, **options)
    await log.pull(1, now=later + ACK_DEADLINE, retry_policy=retry_policy, **options)  # its retry delay begins
    now = later + ACK_DEADLINE + 2 * SECOND
    while runs := await log.pull(1, now=now, **options):
        acks = {log.name(run): {0} for run in runs}
        exactly_once = {log.subscription.subscription_id}
        await _list_messages(log, session, now)
        await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=exactly_once, now=now)
    await log.publish("k", "k", now=now, connection=session, key="k")
    [run] = await log.pull(2, now=now, max_run=1, **options)
    acks = {log.name(run): {0}}
    await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=exactly_once, now=now)
    await log.publish("k", now=now, connection=session)
    await log.publish("k", now=now + 2 * SECOND, connection=session)
    now += 2 * SECOND
    await log.pull(now=now, retention=SECOND, **options)
    await log.publish("gone", now=now, connection=session)
    assert await log.pull(now=now, connection=session)
    await log.pull(now=now + ACK_DEADLINE + SECOND, retention=SECOND, connection=session)


async def _run_redrive(database: Database, log: Log, session: Any) -> None:
    """Of plain messages and of a key, some of which the log has no more."""
    for in_order in (False, True):
        source = await make_log(database, log.start, f"source-{in_order}")
        letters = await make_letters(source, ordered=in_order)
        for text in ("a", "b", "c", "d"):
            await letters.give_up(text, key="k" if in_order else "")
        [delivery] = await letters.dead.pull(2, ordered=in_order)
        await letters.dead.nack(delivery)
        await source.execute(f"DELETE FROM message_batches WHERE shard_id = {source.shard_id} AND last_seq < 3")
        chosen = letters.wanted().chosen
        await redrive.count_letters(session, chosen=chosen, shard_ids=[source.shard_id])
        await redrive.list_piles(session, subscription_id=chosen.subscription_id, shard_ids=[source.shard_id])
        groups = [letter_groups.Group(1, await letters.read(connection=session))]
        await letter_groups.read_sent(session, source.shard_id, groups)
        await redrive.name_piles(session, [letters.dead.shard_id])
        await _run_unrecorded(letters, session, chosen)
        await letters.step(connection=session, max_messages=3)
        await source.pull(connection=session, ordered=in_order)
        await _discard(letters, session, chosen)
        await _purge(source, session)
        await _resend(source, session)
        await _replay_pushes(source, session)


async def _run_unrecorded(letters: Letters, session: Any, chosen: Chosen) -> None:
    await unrecorded.read_recorded_since(session)
    step = unrecorded.UnrecordedStep(
        chosen=chosen,
        letters=Unrecorded(subscription="projects/p/subscriptions/s", shard_ids=[], until=chosen.until),
        after=LogPosition(letters.dead.shard_id, chosen.since, -1),
        max_messages=3,
        own_paths=(None, None),
        consumable=(),
        author=NOBODY,
        now=letters.log.start,
    )
    await unrecorded.find_unrecorded(session, step, most_matched=3)


async def _purge(log: Log, session: Any) -> None:
    where = {"subscription_id": log.subscription.subscription_id, "shard_ids": [log.shard_id]}
    starts = await purging.read_oldest_standing(session, **where)
    meant = LogWalk(
        subscription_id=log.subscription.subscription_id,
        starts=starts,
        ends={log.shard_id: 9},
        until=END_OF_TIME,
        filter_path="exists($.env)",
    )
    after = meant.next_look({})
    assert after is not None
    step = purging.PurgeStep(meant=meant, after=after, max_messages=3, author=NOBODY, now=log.start)
    await purging.purge_matching(session, step, log.attempt_ids)


async def _resend(log: Log, session: Any) -> None:
    """A message that is older than the subscription."""
    await log.execute(f"UPDATE cursors SET first_seq = next_seq WHERE shard_id = {log.shard_id}")
    ids = [(log.shard_id, 1), (log.shard_id, 4)]
    asked = resend.Resend(subscription=log.subscription, ids=ids, author=NOBODY, now=log.start)
    await session.run((BEGIN, {}))
    await resend.resend(session, asked, log.attempt_ids)
    await session.run((COMMIT, {}))


async def _replay_pushes(log: Log, session: Any) -> None:
    """One that expired, and one that is missing."""
    owner, now = log.subscription.subscription_id, log.start
    rows = list(rows_of(None, owner, Event.EXPIRED, 1, [(2, 3)]))
    await session.run(journal.journal_statement(log.shard_id, rows, now))
    found = await push_replay.find_expired(session, subscription=log.subscription, since=EVER, until=now)
    assert found[log.shard_id].last_seq == 2
    walk = LogWalk(subscription_id=owner, starts={log.shard_id: EVER}, ends={log.shard_id: 9}, until=END_OF_TIME)
    after = walk.next_look({})
    assert after is not None
    for missed in Missed:
        meant = Meant(missed=missed, walk=walk, since=EVER, until=END_OF_TIME)
        step = push_replay.ReplayStep(meant=meant, after=after, max_messages=3, author=NOBODY, now=now)
        await session.run((BEGIN, {}))
        await push_replay.replay_pushes(session, step, log.attempt_ids)
        await session.run((COMMIT, {}))


async def _discard(letters: Letters, session: Any, chosen: Chosen) -> None:
    source = letters.log
    await discard.choose_letters(session, chosen=chosen, shard_id=source.shard_id, from_seq=1, most=9)
    asked = discard.Discard(
        subscription_id=chosen.subscription_id,
        shard_ids=[source.shard_id],
        ids=[(source.shard_id, seq) for seq in range(1, 5)],
        consumable={letters.dead.subscription.subscription_id},
        author=NOBODY,
        now=source.start,
    )
    await discard.find_piles(session, asked)
    await session.run((BEGIN, {}))
    mended = edits.Replacement(asked=asked, message=NewMessage(data=b"mended"), shard_id=source.shard_id)
    await edits.replace_letter(session, mended, source.attempt_ids)
    await session.run((COMMIT, {}))


async def _run_push_statements(log: Log, session: Any) -> None:
    """For a full chunk of subscriptions: at different places, with something due for each."""
    ids = [1_000 + number for number in range(MAX_CLAIMANTS)]  # the last without a cursor
    await log.execute(
        f"INSERT INTO cursors SELECT {log.shard_id}, id, '{log.start}', 1, '{log.start}'"
        f" FROM generate_series({ids[0]}, {ids[-2]}) AS id"
    )
    push_log = PushLog(log, ids)
    numbers = range(MAX_CLAIMANTS)
    await push_log.publish("a", "b")
    demands = [push_log.claimant(number, max_messages=1 + number % 2, looks_for_due=False) for number in numbers]
    await push_log.claim_for(*demands, connection=session)
    await push_log.publish("c")
    await push_log.claim(*numbers, now=log.start + ACK_DEADLINE, connection=session)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorder(clone: Callable[[], Any]) -> AsyncIterator[Recorder]:
    """One for all tests: they only look at plans."""
    with clone() as database_url:
        database = Database(database_url, pool_size=6)
        log = await make_log(database, await begin(database))
        await _fill(log)
        async with database.hot() as connection:
            recorder = Recorder(connection)
            await _run_every_statement(log, recorder)
            await _run_redrive(database, log, recorder)
            yield recorder
        await database.close()


def _literal(value: Any, type_name: str) -> str:
    if type_name.startswith("packed"):
        return f"ARRAY[NULL]::{type_name.removeprefix('packed ')}"
    return f"{sql.Literal(value).as_string()}::{type_name}"


async def _explain(recorder: Recorder, name: str, mode: str) -> dict[str, Any]:
    statement = statement_of(name)
    assert statement in recorder.sent, f"{name} was not sent"
    values = [_literal(recorder.sent[statement][parameter], type_) for parameter, type_ in statement.parameters]
    await execute(recorder.connection, f"SET plan_cache_mode = {mode}")
    prepared = sql.Identifier(statement.name.decode()).as_string()
    arguments = f" ({', '.join(values)})" if values else ""
    [(plan,)] = await execute(recorder.connection, f"EXPLAIN (FORMAT JSON) EXECUTE {prepared}{arguments}")
    top: dict[str, Any] = plan[0]["Plan"]
    return top


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


async def test_every_hot_statement_is_expected_here() -> None:
    loaded = {
        f"{module}.{name}"
        for module, content in _MODULES.items()
        for name, value in vars(content).items()
        if name.startswith("_") and isinstance(value, Statement)
    }
    assert loaded == set(EXPECTED)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_hot_statements_read_hot_tables_by_index_only(recorder: Recorder, mode: str) -> None:
    faults = []
    for statement, indexes in EXPECTED.items():
        plan = await _explain(recorder, statement, mode)
        faults += [f"{statement}: {fault}" for node in _nodes(plan) if (fault := _fault(node, indexes))]
    assert not faults, "\n".join(faults)


def _fault(node: dict[str, Any], indexes: set[str]) -> str | None:
    table, kind, index = (node.get(key, "") for key in ("Relation Name", "Node Type", "Index Name"))
    if not HOT_TABLES.match(table) or kind == "ModifyTable":
        return None
    if kind == "Bitmap Heap Scan":  # its bitmap comes from an index scan, which is looked at as well
        return None
    if kind in ("Index Scan", "Index Only Scan") and any(index.endswith(expected) for expected in indexes):
        return None
    return f"{kind} of {table} {index} {node.get('Index Cond', '')} {node.get('Filter', '')}"


async def test_no_hot_statement_compares_each_of_its_rows_with_each_other(recorder: Recorder) -> None:
    """A flush of acks may name thousands of rows: for 2,005 ordering keys it took seconds, and none went on."""
    faults = []
    for statement in EXPECTED:
        plan = await _explain(recorder, statement, "force_generic_plan")
        faults += [
            f"{statement}: {node['Join Filter']}"
            for node in _nodes(plan)
            if node["Node Type"] == "Nested Loop" and "Join Filter" in node  # rather than an index's condition
        ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    "statement",
    [
        "fresh._FIND_FRESH_BATCHES",
        "waiting._READ_WAITING_SINCE",
        "filters._SCAN_NEWEST",
        "topic_messages._SCAN_OLDEST",
        "retained_bytes._SUM_BATCHES",
        "standing_messages._LIST_WAITING",
        "published._LIST_PUBLISHED",
    ],
)
async def test_a_read_of_the_log_stops_early(recorder: Recorder, statement: str, mode: str) -> None:
    """An ordered Append below the limit: no sort, so it reads as many messages as it returns."""
    plan = await _explain(recorder, statement, mode)
    limit = [node for node in _nodes(plan) if node["Node Type"] == "Limit"][-1]
    below = {node["Node Type"] for node in _nodes(limit)}
    assert below <= {"Limit", "ProjectSet", "Result", "Append", *INDEX_SCANS, *EACH_MESSAGE}, below
    for node in _nodes(limit):
        if node["Node Type"] in INDEX_SCANS:
            assert "publish_time >=" in node["Index Cond"]
            assert "ROW(publish_time" in node["Index Cond"]


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("statement", ["fresh._FIND_FRESH_MESSAGES", "fresh._FIND_FRESH_MESSAGES_BY_BODY"])
async def test_a_read_that_looks_for_messages_stops_with_the_last_that_is_wanted(
    recorder: Recorder, statement: str, mode: str
) -> None:
    """No sort below the limit: a claim for ten messages must not look at ten thousand."""
    plan = await _explain(recorder, statement, mode)
    limit = next(node for node in _nodes(plan) if node["Node Type"] == "Limit")
    below = {node["Node Type"] for node in _nodes(limit)}
    assert below <= {"Limit", "Subquery Scan", "WindowAgg", "Result", "Append", "Index Scan", *EACH_MESSAGE}, below


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_the_next_messages_of_a_key_are_found_without_reading_all_that_wait(
    recorder: Recorder, mode: str
) -> None:
    """Also while some partitions are empty: a million messages may wait behind one."""
    plan = await _explain(recorder, "due._FIND_MESSAGES_OF_KEYS", mode)
    limit = next(node for node in _nodes(plan) if node["Node Type"] == "Limit")
    below = {node["Node Type"] for node in _nodes(limit)}
    assert below <= {"Limit", "Append", "Index Scan", *EACH_MESSAGE}, below


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_what_stands_before_a_message_is_counted_without_reading_what_stands_behind(
    recorder: Recorder, mode: str
) -> None:
    plan = await _explain(recorder, "fates._COUNT_BEFORE", mode)
    scans = [node for node in _nodes(plan) if node.get("Relation Name", "").startswith("messages_")]
    assert scans, [node.get("Relation Name") for node in _nodes(plan)]
    for node in scans:
        assert "publish_time >=" in node["Index Cond"]
        assert "publish_time <=" in node["Index Cond"]
