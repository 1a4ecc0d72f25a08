"""The plans of what looks after messages that are to come later, where very many wait (J1)."""

from datetime import timedelta
from typing import Any

import pytest

from broker.core.log import message_ids
from broker.db.driver.statements import Statement
from broker.features.delayed import listed_rows as scheduled
from broker.features.delayed import rows as scheduled_messages
from broker.features.delayed.page import SchedulePage
from broker.features.quotas import retained_rows as retained_bytes
from broker.model.message_id import FIRST_ID_SEQ
from tests.fixtures.log import SECOND, Log
from tests.interleavings.steps import execute
from tests.query_plans.every_statement import literal
from tests.query_plans.recorder import Recorder
from tests.query_plans.test_hot_statements import nodes

WAITING = 60_000  # in 20 shards
TABLES = ("scheduled_messages", "scheduled_ids")


async def _fill(log: Log) -> None:
    await log.execute(
        f"""
        INSERT INTO scheduled_messages (shard_id, id_seq, due_at, accepted_at, size, data)
        SELECT {log.shard_id} + n % 20, 500000000100000 + n, now() + n * interval '1 second', now(), 3, ''
        FROM generate_series(0, {WAITING - 1}) AS n
        """
    )
    await log.execute(
        f"""
        INSERT INTO scheduled_ids
        SELECT {log.shard_id} + n % 20, 500000000200000 + n, n, now() FROM generate_series(0, {WAITING - 1}) AS n
        """
    )
    await log.execute("ANALYZE scheduled_messages")
    await log.execute("ANALYZE scheduled_ids")


async def _run(log: Log, session: Any) -> None:
    one = {"shard_id": log.shard_id, "id_seq": FIRST_ID_SEQ + 100_020}
    await scheduled_messages.find_scheduled_shards(session)
    await scheduled_messages.move_scheduled(session, **one, due_at=log.start + timedelta(days=1))
    await scheduled.read_scheduled(session, **one)
    await retained_bytes.sum_scheduled(session, {log.shard_id: one["id_seq"], log.shard_id + 1: 0}, limit=100)
    await scheduled_messages.cancel_scheduled(session, **one, now=log.start)
    await message_ids.sequence_of(session, **one)
    await message_ids.id_seqs_at(session, [(log.shard_id, 20), (log.shard_id + 1, 21)])
    page = SchedulePage(100, log.start + SECOND, one["id_seq"], log.shard_id)
    await scheduled.list_scheduled(session, shard_ids=[log.shard_id, log.shard_id + 1], page=page)
    await scheduled.count_scheduled(session, shard_ids=[log.shard_id, log.shard_id + 1], most=1_000)
    await scheduled_messages.append_due(session, shard_id=log.shard_id, now=log.start + 600 * SECOND)
    await scheduled_messages.delete_closed_schedules(session, shard_id=log.shard_id)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_nothing_reads_all_that_waits(log: Log, mode: str) -> None:
    await _fill(log)
    faults, checked_at = [], 0
    async with log.database.hot() as connection:
        recorder = Recorder(connection)
        await _run(log, recorder)
        await execute(connection, f"SET plan_cache_mode = {mode}")
        await execute(connection, "SET statement_timeout = '60s'")
        for statement, given in recorder.sent.items():
            if any(table in statement.text.decode() for table in TABLES):
                checked_at += 1
                faults += [f"{statement.name!r}: {fault}" for fault in await _faults(connection, statement, given)]
    assert checked_at >= 11
    assert not faults, "\n".join(faults)


async def _faults(connection: Any, statement: Statement, given: dict[str, Any]) -> list[str]:
    values = [literal(given[parameter], type_) for parameter, type_ in statement.parameters]
    arguments = f" ({', '.join(values)})" if values else ""
    name = statement.name.decode()
    [(plan,)] = await execute(connection, f'EXPLAIN (FORMAT JSON) EXECUTE "{name}"{arguments}')
    found = []
    for node in nodes(plan[0]["Plan"]):
        kind, table = node["Node Type"], node.get("Relation Name", "")
        if table in TABLES and kind != "ModifyTable" and "Index" not in kind and kind != "Bitmap Heap Scan":
            found.append(f"{kind} of {table}")
    return found
