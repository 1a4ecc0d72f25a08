"""The plan of every hot statement, as PostgreSQL makes it for the statement that the store really sent.

The store's functions run against tables of some size; then each statement that the session has prepared is
explained with the very parameters it was sent with, once by a custom plan and once by a generic one.
"""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from psycopg import sql

from broker.store import claims, delivery_attempts, messages, shards
from broker.store.database import Connection, PgBinary
from broker.store.delivery_attempts import release_attempts
from broker.store.partitions import make_partitions_ahead
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log

PARTITIONS = 6
MESSAGES_PER_PARTITION = 5_000
HOT_TABLES = re.compile(r"messages|delivery_attempts|cursors|shards|straggler_messages")

# Statement -> the indexes that it may use on each hot table (a partition's index goes by its suffix).
EXPECTED = {
    "claims._LOCK_CURSOR": {"cursors_pkey"},
    "claims._LOCK_DUE_ATTEMPTS": {"delivery_attempts_due_idx", "delivery_attempts_pkey", "cursors_pkey"},
    "claims._READ_FRESH_MESSAGES": {"cursors_pkey", "_pkey"},
    "claims._READ_MATCHING_MESSAGES": {"cursors_pkey", "_pkey"},
    "claims._READ_DUE_MESSAGES": {"_pkey", "straggler_messages_pkey"},
    "claims._READ_NEXT_DELIVERY_AT": {"delivery_attempts_due_idx", "cursors_pkey"},
    "claims._INSERT_DELIVERY_ATTEMPTS": set(),
    "claims._REPLACE_ATTEMPTS": {"delivery_attempts_pkey"},
    "claims._MOVE_CURSOR": {"cursors_pkey"},
    "delivery_attempts._ACKNOWLEDGE": {"delivery_attempts_pkey"},
    "delivery_attempts._MODIFY_ACK_DEADLINE": {"delivery_attempts_pkey"},
    "delivery_attempts._RELEASE_ATTEMPTS": {"delivery_attempts_pkey"},
    "messages._TAKE_SEQUENCES": {"shards_pkey"},
    "messages._APPEND_MESSAGES": {"shards_pkey"},
    "shards._READ_HEADS": {"shards_pkey"},
}
_MODULES = {"claims": claims, "delivery_attempts": delivery_attempts, "messages": messages, "shards": shards}


def text_of(statement: str) -> bytes:
    module, name = statement.split(".")
    text: bytes = getattr(_MODULES[module], name)
    return text


@dataclass
class Recorder:
    """A connection that remembers the last parameters of each statement."""

    connection: Connection
    sent: dict[bytes, dict[str, Any]] = field(default_factory=dict)

    async def execute(self, query: bytes, parameters: Any = None, **options: Any) -> Any:
        if isinstance(parameters, dict):
            self.sent[query] = parameters
        return await self.connection.execute(query, parameters, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


async def _fill(log: Log) -> None:
    """Other topics and subscriptions with messages and attempts of their own, in several partitions."""
    async with log.database.connection() as connection:
        for hours in range(PARTITIONS):
            await make_partitions_ahead(connection, now=log.start + timedelta(minutes=10 * hours))
    await log.execute(
        "INSERT INTO shards (topic_id, ordinal, last_publish_time)"
        " SELECT 1000 + n, 0, now() FROM generate_series(1, 2000) AS n"
    )
    await log.execute(
        f"""
        INSERT INTO messages (shard_id, publish_time, seq, data)
        SELECT 1 + n % 20, now() + p * interval '10 minutes' - interval '9 minutes', p * 100000 + n, '\\x00'
        FROM generate_series(0, {PARTITIONS - 1}) AS p, generate_series(1, {MESSAGES_PER_PARTITION}) AS n
        WHERE 1 + n % 20 <> {log.shard_id}
        """
    )
    await log.execute(
        """
        INSERT INTO straggler_messages
        SELECT 1 + n % 20, now() - n * interval '1 second', n, NULL, '{}', '\\x00'
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
        "INSERT INTO cursors SELECT 1 + n % 20, 100 + n, now(), 1, now() FROM generate_series(1, 5000) AS n"
    )
    for table in ("shards", "messages", "delivery_attempts", "cursors", "straggler_messages"):
        await log.execute(f"ANALYZE {table}")


async def _run_every_statement(log: Log, session: Any) -> None:
    later = log.start + ACK_DEADLINE
    await log.publish("a", "b", "c", connection=session)
    [delivery] = await log.pull(connection=session)
    await log.modify_ack_deadline(delivery, [0], log.start + SECOND, connection=session)
    await log.acknowledge(delivery, [1], connection=session)
    await log.pull(1, now=later, connection=session)
    await log.pull(now=later, connection=session)
    await log.pull(now=later, connection=session)  # finds nothing
    await log.pull(now=later, connection=session, filter_path='$.a == "b"')
    await release_attempts(
        session,
        shard_id=log.shard_id,
        subscription_id=log.subscription.subscription_id,
        attempt_ids=[delivery.attempt_id],
        now=later,
    )
    await shards.read_heads(session, shard_ids=[log.shard_id])


@pytest.fixture
async def recorder(log: Log) -> AsyncIterator[Recorder]:
    await _fill(log)
    async with log.database.connection() as connection:
        recorder = Recorder(connection)
        await _run_every_statement(log, recorder)
        yield recorder


def _literal(value: Any, type_name: str) -> sql.Composable:
    if isinstance(value, PgBinary):
        return sql.SQL("ARRAY[NULL]::{}").format(sql.SQL(type_name))
    return sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(type_name))


async def _explain(recorder: Recorder, statement: str, mode: str) -> dict[str, Any]:
    text = text_of(statement)
    assert text in recorder.sent, f"{statement} was not sent"
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text.decode())))
    numbered = text.decode()
    for number, name in enumerate(names, 1):
        numbered = numbered.replace(f"%({name})s", f"${number}")
    connection = recorder.connection
    cursor = await connection.execute(
        b"SELECT name, parameter_types::text[] FROM pg_prepared_statements WHERE statement = %s", [numbered]
    )
    row = await cursor.fetchone()
    assert row is not None, f"{statement} is not prepared"
    prepared, types = row
    values = [_literal(recorder.sent[text][name], type_) for name, type_ in zip(names, types, strict=True)]
    await connection.execute(sql.SQL("SET plan_cache_mode = {}").format(mode), prepare=False)
    cursor = await connection.execute(
        sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE {} ({})").format(
            sql.Identifier(prepared), sql.SQL(", ").join(values)
        ),
        prepare=False,
    )
    row = await cursor.fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def test_every_hot_statement_is_expected_here() -> None:
    loaded = {
        f"{module}.{name}"
        for module, content in _MODULES.items()
        for name, value in vars(content).items()
        if name.startswith("_") and name.isupper() and isinstance(value, bytes) and len(value) > 30
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


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_the_fresh_read_stops_early(recorder: Recorder, mode: str) -> None:
    """An ordered Append below the limit: no sort, so it reads as many messages as it returns."""
    plan = await _explain(recorder, "claims._READ_FRESH_MESSAGES", mode)
    limit = next(node for node in _nodes(plan) if node["Node Type"] == "Limit")
    below = {node["Node Type"] for node in _nodes(limit)}
    assert below <= {"Limit", "Append", "Index Scan"}, below
    for node in _nodes(limit):
        if node["Node Type"] == "Index Scan":
            assert "publish_time >=" in node["Index Cond"]
            assert "ROW(publish_time" in node["Index Cond"]
