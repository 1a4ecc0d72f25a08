"""Retracting where very much is, and claims where very much was retracted (J6)."""

from datetime import timedelta
from time import perf_counter
from typing import Any

import pytest

from broker.core.log import retracted_sequences
from broker.db.driver.statements import Statement
from broker.features.retraction import rows as retracted
from broker.features.retraction.removal import Asked, retract
from broker.model.journal import NOBODY
from tests.fixtures.log import SECOND, Log
from tests.interleavings.steps import execute, open_transaction
from tests.query_plans.every_statement import literal
from tests.query_plans.recorder import Recorder
from tests.query_plans.test_hot_statements import nodes

TABLES = ("retracted_messages", "message_batches", "straggler_batches", "scheduled_messages", "scheduled_ids")


async def _fill(log: Log, retractions: int) -> None:
    """So many messages that were retracted, before 100 batches of 100 that were not."""
    await log.execute(
        f"""
        INSERT INTO retracted_messages (shard_id, id_seq, seq, publish_time, retracted_at, retracted_by, head)
        SELECT {log.shard_id}, n, n, now(), now(), '', 0 FROM generate_series(1, {retractions}) AS n
        """
    )
    first = retractions + 1
    for table in ("message_batches", "straggler_batches"):
        await log.execute(
            f"""
            INSERT INTO {table} (shard_id, publish_time, last_seq, count, size, data)
            SELECT {log.shard_id}, now() + n * interval '1 millisecond', {first} + n * 100 + 99, 100, 100,
                   array_fill('x'::bytea, ARRAY[100])
            FROM generate_series(0, 99) AS n
            """
        )
    await log.execute(f"UPDATE shards SET head = {retractions} + 10000, last_publish_time = now()")
    await log.execute("ANALYZE")


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_nothing_reads_all_that_there_is(log: Log, mode: str) -> None:
    await _fill(log, 20_000)
    faults, checked_at = [], 0
    async with log.database.hot() as connection:
        recorder: Any = Recorder(connection)
        await execute(connection, "BEGIN")
        ids = [(log.shard_id, 20_000 + n) for n in (1, 55, 300, 9_000)] + [(log.shard_id, 5 * 10**14 + 7)]
        asked = Asked(ids=ids, author=NOBODY, now=log.start)
        await retract(recorder, asked)
        await retracted.name_replacement(recorder, of=(log.shard_id, 20_001), replacement=(log.shard_id, 1))
        await retracted_sequences.read_retracted(recorder, shard_id=log.shard_id, seqs=[1, 2])
        await execute(connection, f"SET plan_cache_mode = {mode}")
        for statement, given in recorder.sent.items():
            if any(table in statement.text.decode() for table in TABLES):
                checked_at += 1
                faults += [f"{statement.name!r}: {fault}" for fault in await _faults(connection, statement, given)]
        await execute(connection, "ROLLBACK")
    assert checked_at >= 8
    assert not faults, "\n".join(faults)


async def _faults(connection: Any, statement: Statement, given: dict[str, Any]) -> list[str]:
    values = [literal(given[parameter], type_) for parameter, type_ in statement.parameters]
    arguments = f" ({', '.join(values)})" if values else ""
    [(plan,)] = await execute(connection, f'EXPLAIN (FORMAT JSON) EXECUTE "{statement.name.decode()}"{arguments}')
    found = []
    for node in nodes(plan[0]["Plan"]):
        kind, table = node["Node Type"], node.get("Relation Name", "")
        if (
            table.startswith(TABLES)
            and kind != "ModifyTable"
            and "Index" not in kind
            and kind != "Bitmap Heap Scan"
        ):
            found.append(f"{kind} of {table}")
    return found


async def _claim_reads(log: Log) -> int:
    """How many buffers of tables and indexes a claim of ten messages looks at."""
    async with log.database.hot() as connection:
        recorder: Any = Recorder(connection)
        await log.claim(10, connection=recorder, now=log.start + timedelta(minutes=1))
        blocks = 0
        await execute(connection, "BEGIN")
        for statement, given in recorder.sent.items():
            if not statement.text.startswith((b"BEGIN", b"COMMIT", b"INSERT", b"UPDATE")):
                values = [literal(given[parameter], type_) for parameter, type_ in statement.parameters]
                arguments = f" ({', '.join(values)})" if values else ""
                name = statement.name.decode()
                explained = f'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE "{name}"{arguments}'
                [(plan,)] = await execute(connection, explained)
                blocks += plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
        await execute(connection, "ROLLBACK")
    return blocks


async def test_a_claim_of_a_shard_reads_as_much_with_one_message_retracted_as_with_100_000(log: Log) -> None:
    await _fill(log, 1)
    one = await _claim_reads(log)
    await log.execute("DELETE FROM message_batches; DELETE FROM straggler_batches; DELETE FROM retracted_messages")
    await log.execute("DELETE FROM delivery_attempts")
    await log.execute("UPDATE cursors SET next_seq = 1, next_publish_time = '2000-01-01Z'")
    await log.execute("VACUUM message_batches")
    await _fill(log, 100_000)
    many = await _claim_reads(log)
    assert many <= one + 20, (one, many)


@pytest.mark.slow
async def test_a_thousand_are_retracted_in_a_second(log: Log) -> None:
    await _fill(log, 100_000)
    ids = [(log.shard_id, 100_001 + 7 * n) for n in range(1_000)]
    began = perf_counter()
    async with open_transaction(log.database) as session:
        done = await retract(session, Asked(ids=ids, author=NOBODY, now=log.start + SECOND))
    assert len(done.retractions) == 1_000
    assert perf_counter() - began < 5
