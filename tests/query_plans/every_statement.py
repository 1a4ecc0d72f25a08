"""Every hot statement, sent: the store's functions run against tables of some size."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

from psycopg import sql

from broker.core.acking import acknowledge_citus, delivery_attempts, traces
from broker.core.acking.delivery_attempts import (
    acknowledge_exactly_once,
    acknowledge_in_order,
    exhaust_returned,
    read_open_attempts,
    release_attempts,
)
from broker.core.backlog import bringing_back, locked_backlog, pending_rows
from broker.core.claiming.transaction import claim, due, fresh, lock_due_attempts_citus, passed, write
from broker.core.claiming.transaction.request import MAX_TARGETS
from broker.core.lag import lag_rows as lag
from broker.core.log import append_messages_citus, logged_message, messages, published, retained, shards
from broker.core.log import copied_messages as copying
from broker.core.log import walked_messages as log_walk
from broker.core.log.known_heads import FIRST_NEEDED, KnownHeads
from broker.core.log.log_page import LogPage
from broker.core.log.log_walk import LogWalk
from broker.core.log.packing import encode_scheduled
from broker.core.log.partitions import make_partitions_ahead
from broker.core.pulling import reader_rows as readers
from broker.core.records import journal
from broker.db.driver.database import Database
from broker.db.driver.statements import BEGIN, COMMIT, Statement
from broker.features.dead_letters import dead_letter_groups
from broker.features.dead_letters import rows as dead_letter_rows
from broker.features.dead_letters.chosen import Chosen
from broker.features.dead_letters.dead_letter_list import DeadLetterPage
from broker.features.dead_letters.discarding import rows as discard
from broker.features.dead_letters.editing import rows as edits
from broker.features.dead_letters.recovery import rows as push_replay
from broker.features.dead_letters.recovery.push_replay import Meant, Missed
from broker.features.dead_letters.redriving import lost_dead_letters
from broker.features.dead_letters.redriving import rows as redrive
from broker.features.filters import trial_rows as filters
from broker.features.inspect import backlog_rows as backlog_messages
from broker.features.inspect import histogram_rows as histogram
from broker.features.inspect import topic_rows as topic_messages
from broker.features.inspect.backlog_page import BacklogPage
from broker.features.inspect.deliveries import rows as delivery_reports
from broker.features.inspect.histogram import HistogramOptions
from broker.features.inspect.topic_page import ORDERS, TopicPage
from broker.features.lag_board import sample_rows as lag_samples
from broker.features.metrics import rows as figures
from broker.features.priorities import waiting
from broker.features.purge import rows as purging
from broker.features.quotas import read_kept_citus
from broker.features.quotas import retained_rows as retained_bytes
from broker.features.quotas.retained import Tally, span_of
from broker.features.resend import rows as resend
from broker.model.dead_letter import REJECT
from broker.model.journal import NOBODY, Attribution, Event, Journal, JournalMode, rows_of
from broker.model.message import NewMessage
from broker.model.retry_policy import RetryPolicy
from broker.model.timestamps import END_OF_TIME, EVER
from tests.fixtures.database import begin
from tests.fixtures.dead_letters import DeadLetters, make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, make_log
from tests.fixtures.push_log import PushLog
from tests.query_plans.recorder import Recorder

PARTITIONS = 6
EMPTY_PARTITIONS = 6  # and known to be so: the planner thinks that reading them costs nothing
MESSAGES_PER_PARTITION = 5_000
BODY_PATH = 'exists($[1]."a" ? (@.type() == "number" && @ > 5))'

MODULES = {
    "bringing_back": bringing_back,
    "log_walk": log_walk,
    "logged_message": logged_message,
    "push_replay": push_replay,
    "claim": claim,
    "copying": copying,
    "due": due,
    "delivery_reports": delivery_reports,
    "fresh": fresh,
    "passed": passed,
    "waiting": waiting,
    "write": write,
    "delivery_attempts": delivery_attempts,
    "figures": figures,
    "histogram": histogram,
    "retained": retained,
    "filters": filters,
    "journal": journal,
    "lag": lag,
    "lag_samples": lag_samples,
    "dead_letters": dead_letter_rows,
    "append_messages_citus": append_messages_citus,
    "acknowledge_citus": acknowledge_citus,
    "lock_due_attempts_citus": lock_due_attempts_citus,
    "read_kept_citus": read_kept_citus,
    "messages": messages,
    "pending_rows": pending_rows,
    "locked_backlog": locked_backlog,
    "published": published,
    "readers": readers,
    "backlog_messages": backlog_messages,
    "topic_messages": topic_messages,
    "traces": traces,
    "purging": purging,
    "redrive": redrive,
    "dead_letter_groups": dead_letter_groups,
    "lost_dead_letters": lost_dead_letters,
    "resend": resend,
    "discard": discard,
    "edits": edits,
    "retained_bytes": retained_bytes,
    "shards": shards,
}


def statements_of(modules: Mapping[str, ModuleType]) -> dict[str, Statement]:
    """By module and constant; for `<statement>.citus`, what replaces it on distributed tables."""
    found: dict[str, Statement] = {}
    for module, content in modules.items():
        for name, value in vars(content).items():
            if name.startswith("_") and isinstance(value, Statement):
                found[f"{module}.{name}"] = value
                if value.citus_statement is not None:
                    found[f"{module}.{name}.citus"] = value.citus_statement.statement
    return found


def statement_of(name: str) -> Statement:
    return statements_of(MODULES)[name]


async def fill(log: Log) -> None:
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


async def run_every_statement(log: Log, session: Any) -> None:
    later = log.start + ACK_DEADLINE
    await log.publish("large", connection=session)
    await log.acknowledge((await log.pull(connection=session, max_bytes=1000))[0], connection=session)
    await log.publish("a", "b", "c", connection=session)
    [delivery] = await log.pull(connection=session)
    await log.modify_ack_deadline(delivery, [0], log.start + SECOND, connection=session)
    await log.merge_parts(delivery, connection=session)
    await exhaust_returned(
        session,
        shard_id=log.shard_id,
        subscription_id=log.subscription.subscription_id,
        messages={log.name(delivery): 0},
        failure=REJECT,
        now=log.start,
    )
    attribution = Attribution(Journal(mode=JournalMode.ALL))
    names = [log.name(delivery)]
    async with journal.written_down(
        session, shard_id=log.shard_id, attempts=names, journaled=True, clock=lambda: later
    ) as ledger:
        await log.acknowledge(delivery, [1], connection=session)
        assert ledger is not None
        ledger.acked([(names[0], {1})], [], {names[0]: [({1}, attribution)]})
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
            now=later,
            page=TopicPage(10, order, ordering_key="k", contains="x", preview_bytes=10),
        )
        await topic_messages.list_topic_messages(session, asked)
    await lag_samples.next_to_sample(session, after="", max_rows=500)
    await lag.read_lag(session, subscriptions=[log.subscription], now=later)
    await histogram.read_histogram(
        session,
        shard_ids=[log.shard_id],
        retained_since=log.start - timedelta(hours=1),
        now=later,
        options=HistogramOptions(60, None, None),
    )
    await figures.read_retained(session, max_topics=1_000)
    await shards.read_heads(session, shard_ids=[log.shard_id])
    await retained_bytes.read_projects(session)
    await retained_bytes.read_kept(session, projects=["projects/p"], now=later)
    await retained_bytes.sum_batches(session, {log.shard_id: Tally(span_of(log.start))}, limit=10)
    await retained_bytes.sum_scheduled(session, {log.shard_id: 0}, limit=10)
    await _look_as_on_nodes(session, later)
    await _deliver_as_on_nodes(log, session, later)
    await _list_dead_letters(log, session, later)
    await _run_push_statements(log, session)
    to_come = encode_scheduled([NewMessage(data=b"later")], [later])
    await messages.append_messages(session, shard_id=log.shard_id, requests=[to_come], now=log.start)


async def _look_as_on_nodes(session: Any, now: datetime) -> None:
    """The forms of statements for where tables lie on nodes."""
    session.is_distributed = True
    await lag_samples.next_to_sample(session, after="", max_rows=500)
    await retained_bytes.read_kept(session, projects=["projects/p"], now=now)
    session.is_distributed = False


async def _deliver_as_on_nodes(log: Log, session: Any, now: datetime) -> None:
    session.is_distributed = True
    heads = KnownHeads()
    requests = [messages.encode_messages([NewMessage(data=b"a")])]
    for _ in range(FIRST_NEEDED + 2):
        await messages.append_messages(
            session, shard_id=log.shard_id, requests=requests, now=log.start, heads=heads
        )
    [delivery] = await log.pull(now=now, connection=session)
    await log.acknowledge(delivery, connection=session)
    await log.pull(now=now, connection=session)
    session.is_distributed = False


async def _list_dead_letters(log: Log, session: Any, now: datetime) -> None:
    await log.execute(
        "INSERT INTO dead_letters SELECT 1 + n % 20, now() - n * interval '1 second', n, 1 + n % 20, n, now(), 't',"
        f" {log.subscription.subscription_id}, 's', 5, 'nack' FROM generate_series(1, 20000) AS n"
    )
    await log.execute("ANALYZE dead_letters")
    asked = dead_letter_rows.AskedDeadLetters(
        subscription_id=log.subscription.subscription_id,
        shard_ids=[log.shard_id],
        filter_path=None,
        body_path=None,
        page=DeadLetterPage(10),
        now=now,
    )
    await dead_letter_rows.list_dead_letters(session, asked)
    where = {"shard_ids": [log.shard_id], "publish_times": [log.start], "seqs": [1]}
    await session.run(
        (locked_backlog._MATCH_DEAD_LETTERS, where | {"filter_path": '$.a == "b"', "body_path": None})
    )


async def _list_messages(log: Log, session: Any, later: datetime) -> None:
    asked = backlog_messages.Asked(
        subscription_id=log.subscription.subscription_id,
        shard_ids=[log.shard_id],
        ordered=True,
        retained_since=log.start - timedelta(hours=1),
        filter_path='$.a == "b"',
        log_path='$.a == "b"',
        page=BacklogPage(100),
        now=later,
    )
    await backlog_messages.list_messages(session, asked)
    message = await logged_message.read_message(session, shard_id=log.shard_id, id_seq=1)
    await delivery_reports.find_gap(session, shard_id=log.shard_id, seq=1)
    assert message is not None
    [delivery] = await delivery_reports.read_deliveries(session, message=message, subscriptions=[log.subscription])
    await delivery_reports.count_before(session, delivery, now=later)
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


async def run_redrive(database: Database, log: Log, session: Any) -> None:
    """Of plain messages and of a key, some of which the log has no more."""
    for in_order in (False, True):
        source = await make_log(database, log.start, f"source-{in_order}")
        dead_letters = await make_dead_letters(source, ordered=in_order)
        for text in ("a", "b", "c", "d"):
            await dead_letters.give_up(text, key="k" if in_order else "")
        [delivery] = await dead_letters.dead.pull(2, ordered=in_order)
        await dead_letters.dead.nack(delivery)
        await source.execute(f"DELETE FROM message_batches WHERE shard_id = {source.shard_id} AND last_seq < 3")
        chosen = dead_letters.wanted().chosen
        await dead_letter_groups.count_chosen(
            session, chosen, shard_ids=[source.shard_id], consumable=(), now=source.start
        )
        await dead_letter_groups.count_dead_letters(session, chosen=chosen, shard_ids=[source.shard_id])
        await redrive.list_dead_letter_subscriptions(
            session, subscription_id=chosen.subscription_id, shard_ids=[source.shard_id]
        )
        await dead_letter_rows.list_dead_letter_topics(
            session, subscription_id=chosen.subscription_id, shard_ids=[source.shard_id]
        )
        groups = [dead_letter_groups.Group(1, await dead_letters.read(connection=session))]
        await dead_letter_groups.read_messages(session, source.shard_id, groups, groups)
        await dead_letters.step(connection=session, max_messages=3)
        await source.pull(connection=session, ordered=in_order)
        await _discard(dead_letters, session, chosen)
        await _purge(source, session)
        await _resend(source, session)
        await _replay_pushes(source, session)


async def _purge(log: Log, session: Any) -> None:
    where = {"subscription_id": log.subscription.subscription_id, "shard_ids": [log.shard_id]}
    starts = await purging.read_oldest_backlog(session, **where)
    meant = LogWalk(
        subscription_id=log.subscription.subscription_id,
        starts=starts,
        ends={log.shard_id: 9},
        until=END_OF_TIME,
        filter_path="exists($.env)",
    )
    after = meant.next_position({})
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
    after = walk.next_position({})
    assert after is not None
    for missed in Missed:
        meant = Meant(missed=missed, walk=walk, since=EVER, until=END_OF_TIME)
        step = push_replay.ReplayStep(meant=meant, after=after, max_messages=3, author=NOBODY, now=now)
        await session.run((BEGIN, {}))
        await push_replay.replay_pushes(session, step, log.attempt_ids)
        await session.run((COMMIT, {}))


async def _discard(dead_letters: DeadLetters, session: Any, chosen: Chosen) -> None:
    source = dead_letters.log
    await discard.choose_dead_letters(
        session, chosen=chosen, shard_id=source.shard_id, from_seq=1, most=9, now=source.start
    )
    asked = discard.Discard(
        subscription_id=chosen.subscription_id,
        shard_ids=[source.shard_id],
        ids=[(source.shard_id, seq) for seq in range(1, 5)],
        consumable={dead_letters.dead.subscription.subscription_id},
        author=NOBODY,
        now=source.start,
    )
    await discard.find_dead_letter_subscriptions(session, asked)
    await session.run((BEGIN, {}))
    mended = edits.Replacement(
        asked=asked, batch=messages.encode_messages([NewMessage(data=b"mended")]), shard_id=source.shard_id
    )
    await edits.replace_dead_letter(session, mended, source.attempt_ids)
    await session.run((COMMIT, {}))


async def _run_push_statements(log: Log, session: Any) -> None:
    """For a full chunk of subscriptions: at different places, with something due for each."""
    ids = [1_000 + number for number in range(MAX_TARGETS)]  # the last without a cursor
    await log.execute(
        f"INSERT INTO cursors SELECT {log.shard_id}, id, '{log.start}', 1, '{log.start}'"
        f" FROM generate_series({ids[0]}, {ids[-2]}) AS id"
    )
    push_log = PushLog(log, ids)
    numbers = range(MAX_TARGETS)
    await push_log.publish("a", "b")
    targets = [push_log.target(number, max_messages=1 + number % 2, includes_due=False) for number in numbers]
    await push_log.claim_for(*targets, connection=session)
    await push_log.publish("c")
    await push_log.claim(*numbers, now=log.start + ACK_DEADLINE, connection=session)


@asynccontextmanager
async def every_statement_sent(database_url: str) -> AsyncIterator[Recorder]:
    """A session of a new database that has sent them all."""
    database = Database(database_url, pool_size=6)
    log = await make_log(database, await begin(database))
    await fill(log)
    async with database.hot() as connection:
        recorder = Recorder(connection)
        await run_every_statement(log, recorder)
        await run_redrive(database, log, recorder)
        yield recorder
    await database.close()


def literal(value: Any, type_name: str) -> str:
    if type_name.startswith("packed"):
        return f"{'ARRAY[NULL]' if type_name.endswith('[]') else 'NULL'}::{type_name.removeprefix('packed ')}"
    return f"{sql.Literal(value).as_string()}::{type_name}"
