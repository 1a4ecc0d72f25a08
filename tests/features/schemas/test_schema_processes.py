"""What a schema or a message could cost is spent in processes that may be ended, and projects share (A11, M1)."""

import asyncio
import json
from collections.abc import AsyncIterator

import psutil
import pytest

from broker.core.catalog.resource_cache import ResourceCache
from broker.core.process.tasks import Tasks
from broker.features.schemas.checking.apart import Answer, Check
from broker.features.schemas.checking.json_schema import JsonSchema
from broker.features.schemas.rows import insert_schema
from broker.features.schemas.schema import Schema
from broker.features.schemas.schema_checks import SchemaChecks
from broker.features.schemas.schema_processes import TOO_LONG, SchemaProcesses
from broker.model.errors import ResourceExhausted, Unavailable
from broker.model.message import NewMessage
from broker.model.schema_settings import SchemaSettings
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import TURNS
from tests.fixtures.broker import eventually
from tests.fixtures.log import Log

# Each level of a message is looked at twice, and so is each within it: 40 levels take for ever.
_TWICE = [{"type": "array", "items": {"$ref": "#"}, "minItems": least} for least in (2, 1)]
_DEFINITION = json.dumps({"anyOf": [{"type": "integer"}, *_TWICE]})
_QUICK, _ENDLESS = b"[[1], 2]", b"[" * 40 + b"]" * 40
_GREEDY, _GOOD = "projects/greedy", "projects/good"


@pytest.fixture
async def processes() -> AsyncIterator[SchemaProcesses]:
    processes = SchemaProcesses(slow_seconds=1.0, wait_seconds=120.0)
    yield processes
    await processes.close()


def check(data: bytes, number: int = 0) -> Check:
    return Check(Schema(name="s", type="JSON", definition=_DEFINITION, number=number), data, "JSON")


async def test_a_small_message_that_would_take_for_ever_ends_the_process_and_the_next_is_read(
    processes: SchemaProcesses,
) -> None:
    assert not JsonSchema(_DEFINITION).is_quick(2, "JSON")
    assert (await processes.run(_GREEDY, check(_QUICK))).error == ""
    assert (await processes.run(_GREEDY, check(_ENDLESS))).error == TOO_LONG
    assert (await processes.run(_GREEDY, check(_QUICK))).error == ""


async def test_a_project_waits_for_none_of_the_slow_messages_of_another(processes: SchemaProcesses) -> None:
    """Six callers send messages by a schema that is known to be slow: all of them are still under way."""
    await processes.run(_GREEDY, check(_ENDLESS, number=1))
    slow = [asyncio.create_task(processes.run(_GREEDY, check(_ENDLESS, number=1))) for _ in range(6)]
    try:
        await eventually(lambda: processes._slow._process.pid is not None)
        assert psutil.Process(processes._slow._process.pid).nice() == min(psutil.Process().nice() + 10, 19)
        for _ in range(20):
            assert (await processes.run(_GOOD, check(_QUICK, number=2))).error == ""
        assert not any(task.done() for task in slow)
    finally:
        await _cancel(slow)


async def test_jobs_that_wait_while_their_schema_is_found_to_be_slow_do_not_end_the_process_again(
    processes: SchemaProcesses,
) -> None:
    """Six callers come at once: the first of them shows what the others would cost."""
    await processes.run(_GOOD, check(_QUICK, number=2))
    slow = [asyncio.create_task(processes.run(_GREEDY, check(_ENDLESS, number=1))) for _ in range(6)]
    try:
        pids = {processes._quick._process.pid}
        for _ in range(20):
            assert (await processes.run(_GOOD, check(_QUICK, number=2))).error == ""
            pids.add(processes._quick._process.pid)
        assert len(pids) == 2
        assert processes._slow._turns.under_way == 1
        assert len(processes._slow._turns) == 5
    finally:
        await _cancel(slow)


async def test_what_is_unknown_of_a_project_with_a_slow_schema_is_taken_to_be_slow(
    processes: SchemaProcesses,
) -> None:
    """Else each new revision would have the quick process for itself once."""
    await processes.run(_GREEDY, check(_ENDLESS, number=1))
    slow = asyncio.create_task(processes.run(_GREEDY, check(_ENDLESS, number=2)))
    try:
        await eventually(lambda: processes._slow._turns.under_way == 1)
        assert processes._quick._turns.under_way == 0
    finally:
        await _cancel([slow])


@pytest.mark.slow
@pytest.mark.ci
async def test_projects_share_the_slow_process_by_its_time(processes: SchemaProcesses) -> None:
    """One that comes later has its turn before the second message of a project that was there first."""
    for number, project in enumerate((_GREEDY, _GOOD), 1):
        await processes.run(project, check(_ENDLESS, number=number))
    done: list[str] = []

    async def send(project: str, number: int) -> Answer:
        answer = await processes.run(project, check(_ENDLESS, number=number))
        done.append(project)
        return answer

    greedy = [asyncio.create_task(send(_GREEDY, 1)) for _ in range(4)]
    await eventually(lambda: len(processes._slow._turns) == 3)
    await send(_GOOD, 2)
    await _cancel(greedy)
    assert done.index(_GOOD) <= 1


async def test_one_whose_turn_does_not_come_is_told_to_try_again() -> None:
    processes = SchemaProcesses(slow_seconds=60.0, wait_seconds=0.05)
    first = asyncio.create_task(processes.run(_GREEDY, check(_ENDLESS, number=1)))
    try:
        await eventually(lambda: processes._slow._turns.under_way == 1)
        with pytest.raises(Unavailable, match="wait to be checked against schemas"):
            await processes.run(_GREEDY, check(_QUICK, number=1))
    finally:
        await _cancel([first])
        await processes.close()


async def test_a_request_whose_messages_take_too_long_is_refused_with_how_many_were_checked(
    log: Log, tasks: Tasks
) -> None:
    name, counters = f"{_GOOD}/schemas/s", Counters()
    wanted = Schema(name=name, type="JSON", definition=_DEFINITION, revision_id="0123abcd", created_at=log.start)
    async with log.database.transaction() as connection:
        schema = await insert_schema(connection, schema=wanted)
    assert schema is not None
    checks = SchemaChecks(ResourceCache(log.database, tasks, counters=counters), counters)
    settings = SchemaSettings(schema=name, encoding="JSON", schema_id=schema.schema_id)
    messages = [NewMessage(_QUICK)] * 2
    try:
        assert len(await checks.check(_GOOD, settings, messages)) == 2
        with pytest.raises(ResourceExhausted, match="0 of 2 messages were checked within -1 s"):
            await checks.check(_GOOD, settings, messages, seconds=-1)
    finally:
        await checks.close()
    assert counters.project(_GOOD)[TURNS["schema"]] == 2


async def _cancel(tasks: list[asyncio.Task[Answer]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    "definition",
    [
        {"$defs": {"a": {"$dynamicRef": "#b"}}},
        {"properties": {"a": {"$id": "b"}}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"items": {"pattern": "(a?){50}a{50}"}},
        {"$defs": {f"d{n}": {"items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(3_000)}, "$ref": "#/$defs/d0"},
        {"anyOf": [{"pattern": f"a{n}"} for n in range(30)]},
        {
            "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 4} for n in range(12)},
            "$ref": "#/$defs/d0",
        },
    ],
)
def test_a_definition_that_is_hard_to_follow_is_never_read_by_at_once(definition: object) -> None:
    assert not JsonSchema(json.dumps(definition)).is_quick(1, "JSON")
