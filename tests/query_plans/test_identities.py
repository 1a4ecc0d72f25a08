"""The plans of a flush that looks for repeats, where a day of identities is kept (J5)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.core.log.partitions import make_partitions_ahead
from broker.db.driver.statements import Statement
from broker.model.deduplication import MAX_WINDOW
from tests.features.deduplication.test_identities import append, request
from tests.fixtures.log import SECOND, Log
from tests.interleavings.steps import execute
from tests.query_plans.every_statement import literal
from tests.query_plans.recorder import Recorder
from tests.query_plans.test_hot_statements import nodes

_TABLES = ("message_identities", "shards", "identities_")


async def _fill(log: Log) -> None:
    async with log.database.connection() as connection:
        for hours in range(25):
            await make_partitions_ahead(connection, now=log.start + timedelta(hours=hours))
    await log.execute(
        f"""
        INSERT INTO message_identities
        SELECT {log.shard_id} + n % 20, gen_random_uuid(), n,
               '{log.start.isoformat()}'::timestamptz + n % 24 * interval '1 hour'
        FROM generate_series(1, 60000) AS n
        """
    )
    await log.execute(
        "INSERT INTO shards (topic_id, ordinal, last_publish_time)"
        " SELECT 1000 + n, 0, now() FROM generate_series(1, 2000) AS n"
    )
    await log.execute("ANALYZE message_identities")
    await log.execute("ANALYZE shards")


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_no_flush_reads_all_identities(log: Log, mode: str) -> None:
    await _fill(log)
    later = log.start + timedelta(hours=24)
    async with log.database.hot() as connection:
        recorder = Recorder(connection)
        asked = request("a1", "b1", "C1", due_at=later + SECOND)
        assert asked.identified is not None
        asked = replace(asked, identified=replace(asked.identified, window=MAX_WINDOW))
        await append(log, asked, now=later, connection=recorder)  # type: ignore[arg-type]
        await execute(connection, f"SET plan_cache_mode = {mode}")
        faults: list[str] = []
        for statement, given in recorder.sent.items():
            if statement.parameters and any(table in statement.text.decode() for table in _TABLES):
                faults += [f"{statement.name!r}: {fault}" for fault in await _faults(connection, statement, given)]
    assert len(recorder.sent) >= 6
    assert not faults, "\n".join(faults)


async def _faults(connection: Any, statement: Statement, given: dict[str, Any]) -> list[str]:
    values = [_value(given[parameter], type_) for parameter, type_ in statement.parameters]
    name = statement.name.decode()
    [(plan,)] = await execute(connection, f'EXPLAIN (FORMAT JSON) EXECUTE "{name}" ({", ".join(values)})')
    found = []
    for node in nodes(plan[0]["Plan"]):
        kind, table = node["Node Type"], node.get("Relation Name", "")
        if table.startswith(_TABLES) and kind != "ModifyTable" and "Index" not in kind and "Bitmap" not in kind:
            found.append(f"{kind} of {table}")
    return found


def _value(given: Any, type_: str) -> str:
    if type_ == "packed uuid[]":
        return "ARRAY[gen_random_uuid(), gen_random_uuid(), gen_random_uuid()]"
    return literal(given, type_)
