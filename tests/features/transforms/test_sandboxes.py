"""Functions that mean no good, and what they cost: their own messages a failure, and nobody else anything."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator

import msgspec
import psutil
import pytest

from broker.core.process.tasks import Tasks
from broker.features.transforms.sandbox.jobs import Ending, Message, Outcome
from broker.features.transforms.sandboxes import DIED, Program, Sandboxes
from broker.model.field_transform import Fields
from broker.model.transforms import JavascriptUdf, Transform, Transforms
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import SANDBOX_DEATHS
from tests.fixtures.broker import eventually

GOOD = "function f(m) { m.attributes.good = 'yes'; return m; }"
LOOP = "function f(m) { for (;;); }"
# A loop within QuickJS that looks at no bound of time.
DEAF = "function f(m) { if (m.data === 'bad') for (;;) new Uint8Array(1e8).fill(4); return m; }"


@pytest.fixture
async def sandboxes(tasks: Tasks) -> AsyncIterator[Sandboxes]:
    sandboxes = Sandboxes(tasks, Counters(), wait_seconds=60)
    yield sandboxes
    await tasks.close()
    await sandboxes.close()


def transforms(code: str) -> Transforms:
    return (Transform(javascript_udf=JavascriptUdf("f", code)),)


def program(code: str, project: str = "projects/p") -> Program:
    return Program(project, f"{project}/{code}", transforms(code))


def messages(*data: str) -> list[Message]:
    return [Message(each.encode(), "{}") for each in data]


async def run(sandboxes: Sandboxes, code: str, *data: str, seconds: float = 60.0) -> list[Outcome]:
    return list(await sandboxes.run(program(code), messages(*data), seconds=seconds))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (LOOP, "it took more than 0.5 s (line 1, column "),
        ("function f(m) { try { for (;;); } catch (e) { return m; } finally { return m; } }", "it took more than"),
        ("function f(m) { return /(.*)*y/.test('x'.repeat(1e5)); }", "it took more than 0.5 s"),
        ("function f(m) { throw {toString() { for (;;); }}; }", "it took more than 0.5 s"),
        ("Error.prototype.toString = Object.prototype[Symbol.toPrimitive] = () => { for (;;); };" + LOOP, "0.5 s"),
        ("function f(m) { const all = []; for (;;) all.push(new Array(1e4).fill(1)); }", "out of memory"),
        ("function f(m) { return f(m); }", "Maximum call stack size exceeded"),
        ("function f(m) { return JSON.parse('['.repeat(1e6)); }", "Maximum call stack size exceeded"),
        ("function f(m) { m.data = 'x'.repeat(1e7 + 1); return m; }", "what it returns is over 10000000 bytes"),
        ("function f(m) { m.attributes.a = 'x'.repeat(1e7); return m; }", "what it returns is over 10000000 bytes"),
        ("function f(m) { Array.prototype.toJSON = () => 'x'; return m; }", "it must return a message whose data"),
        ("function f(m) { return {data: '\\ud800'}; }", "it must return a message whose data"),
        ("async function f(m) { return m; }", "it must return data that is a string"),
        ("async function f(m) { await import('os'); }", "it must return data that is a string"),
        ("function f(m) { return {data: '' + [typeof std, typeof os, typeof require, typeof fetch]}; }", ""),
        ("function f(m) { JSON = Object = Array = Date = null; return m; }", ""),
    ],
)
async def test_a_hostile_function_fails_and_says_why(sandboxes: Sandboxes, code: str, expected: str) -> None:
    [outcome] = await run(sandboxes, code, "1")
    assert expected in outcome.reason
    assert bool(outcome.reason) == (outcome.ending is Ending.FAILED) == bool(expected)
    if "typeof" in code:
        assert outcome.data == b"undefined,undefined,undefined,undefined"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("for (let n = 0; n < 1e5; n++) m.attributes[n] = ''; return m;", "has 100003 entries, the maximum is 100"),
        ("m.attributes[''] = 'x'; return m;", "has an empty key"),
        ("m.attributes['k'.repeat(70000)] = 'x'; return m;", "has a key over 256 bytes"),
        ("m.attributes.k = 'x'.repeat(1025); return m;", "['k'] is too long: 1025 bytes, the maximum is 1024"),
        ("m.attributes.k = 'a\\0'; return m;", "has the character U+0000"),
        ("m.attributes['\\0'] = 'a'; return m;", "has the character U+0000"),
        ("m.attributes.googclient_deliveryattempt = '1'; return m;", "keys may not start with 'goog'"),
        ("m.attributes.googclient_schemaname = 'other'; return m;", "keys may not start with 'goog'"),
        ("return {data: '', attributes: {}};", "message is empty"),
        ("m.data = ''; return m;", ""),
        ("return m;", ""),
        ("m.attributes = {googclient_schemaname: m.attributes.googclient_schemaname, a: 'b'}; return m;", ""),
        ("for (let n = 3; n < 100; n++) m.attributes['k' + n] = 'v'; return m;", ""),
        ("for (let n = 3; n < 101; n++) m.attributes['k' + n] = 'v'; return m;", "has 101 entries"),
    ],
)
async def test_what_a_function_returns_is_within_the_limits_of_a_publish(
    sandboxes: Sandboxes, code: str, expected: str
) -> None:
    """An attribute that no publisher could have given it, but the broker has, may stay."""
    had = {"googclient_schemaname": "s", "k1": "v", "k2": "v"}
    made = await sandboxes.run(program(f"function f(m) {{ {code} }}"), [Message(b"1", json.dumps(had))], seconds=60)
    assert expected in made[0].reason
    assert bool(made[0].reason) == (made[0].ending is Ending.FAILED) == bool(expected)
    if expected:
        assert made[0].reason.startswith("what it returns breaks a limit: message")
        assert made[0].attributes == "{}"


async def test_a_message_with_more_attributes_than_a_publish_may_have_may_keep_them(sandboxes: Sandboxes) -> None:
    """As a dead letter has."""
    had = [Message(b"1", json.dumps({f"k{n}": "v" for n in range(106)}))]
    [outcome] = await sandboxes.run(program("function f(m) { m.attributes.k1 = ''; return m; }"), had, seconds=60)
    assert outcome.ending is Ending.KEPT
    [outcome] = await sandboxes.run(program("function f(m) { m.attributes.x = ''; return m; }"), had, seconds=60)
    assert "has 107 entries" in outcome.reason


async def test_what_fields_make_is_within_the_limits_of_a_publish(sandboxes: Sandboxes) -> None:
    made = Transform(fields=msgspec.convert({"set": {"attributes.googclient_x": "1"}}, Fields))
    [outcome] = await sandboxes.run(Program("projects/p", "fields", (made,)), messages("1"), seconds=60)
    assert "keys may not start with 'goog'" in outcome.reason


async def test_what_a_function_changes_of_its_world_is_not_anothers(sandboxes: Sandboxes) -> None:
    await run(sandboxes, "JSON.parse = () => 1; function f(m) { Object.prototype.good = 'no'; return m; }", "1")
    [outcome] = await run(sandboxes, GOOD, "1")
    assert (outcome.ending, outcome.attributes) == (Ending.KEPT, '{"good":"yes"}')


@pytest.mark.slow
@pytest.mark.ci
async def test_a_function_that_no_bound_within_ends_costs_its_own_message_alone(tasks: Tasks) -> None:
    """The sandbox dies of it, twice: first nobody knows of which message."""
    counters = Counters()
    sandboxes = Sandboxes(tasks, counters, count=1, wait_seconds=60)
    outcomes = await run(sandboxes, DEAF, "1", "bad", "2", "3")
    assert [outcome.reason for outcome in outcomes] == ["", DIED, "", ""]
    assert counters.process[SANDBOX_DEATHS] == 2
    await sandboxes.close()


@pytest.mark.slow
@pytest.mark.ci
async def test_a_good_function_waits_for_a_turn_and_not_for_the_bad_ones(sandboxes: Sandboxes) -> None:
    """Three projects loop in two sandboxes: whoever comes has to wait for one message of one of them."""
    loops = [
        asyncio.create_task(sandboxes.run(program(LOOP, f"projects/{n}"), messages("1") * 30, seconds=60))
        for n in range(3)
    ]
    await eventually(lambda: len(sandboxes.pids) == 2)
    for n in range(3):
        [outcome] = await run(sandboxes, GOOD, str(n))
        assert outcome.ending is Ending.KEPT
    assert not any(loop.done() for loop in loops)
    for loop in loops:
        loop.cancel()


@pytest.mark.slow
@pytest.mark.ci
async def test_who_takes_long_leaves_a_sandbox_to_others(sandboxes: Sandboxes) -> None:
    """A project with many functions that loop has one of the two, once it is known for that."""
    loops = [
        asyncio.create_task(sandboxes.run(program(f"{LOOP}//{n}"), messages("1") * 30, seconds=60))
        for n in range(4)
    ]
    await eventually(lambda: sandboxes._turns.under_way == 1)
    other = Program("projects/other", "other", transforms(GOOD))
    [outcome] = await sandboxes.run(other, messages("1"), seconds=60)
    assert outcome.ending is Ending.KEPT
    assert not any(loop.done() for loop in loops)
    for loop in loops:
        loop.cancel()


async def test_messages_are_done_though_their_sandbox_is_killed(sandboxes: Sandboxes) -> None:
    await run(sandboxes, GOOD, "0")
    slow = "function f(m) { let n = 0; while (n < 3e5) n++; return m; }"
    doing = asyncio.create_task(run(sandboxes, slow, *map(str, range(60))))
    for _ in range(2):
        await asyncio.sleep(0.1)
        for pid in sandboxes.pids:
            os.kill(pid, signal.SIGKILL)
    outcomes = await doing
    assert [outcome.data for outcome in outcomes] == [str(n).encode() for n in range(60)]
    for pid in sandboxes.pids:
        os.kill(pid, signal.SIGKILL)
    assert [each.ending for each in await run(sandboxes, GOOD, "1", "2")] == [Ending.KEPT] * 2


async def test_in_its_time_as_many_are_done_as_can_be(sandboxes: Sandboxes) -> None:
    await run(sandboxes, GOOD, "1")  # it has started
    outcomes = await run(sandboxes, LOOP, *"123456789abcdef", seconds=4.0)
    assert 0 < len(outcomes) < 15


async def test_concurrent_messages_of_a_resource_go_together_and_come_back_to_their_own(
    sandboxes: Sandboxes,
) -> None:
    outcomes = await asyncio.gather(*(run(sandboxes, GOOD, str(n), f"{n}!") for n in range(200)))
    assert [[each.data.decode() for each in of_one] for of_one in outcomes] == [
        [str(n), f"{n}!"] for n in range(200)
    ]


async def test_a_sandbox_forgets_programs_and_learns_them_again(tasks: Tasks) -> None:
    sandboxes = Sandboxes(tasks, Counters(), count=1, wait_seconds=60)
    for _ in range(2):
        for n in range(50):
            [outcome] = await run(sandboxes, f"function f(m) {{ m.data += '{n}'; return m; }}", "x")
            assert outcome.data == f"x{n}".encode()
    await sandboxes.close()


async def test_a_sandbox_does_not_know_what_the_broker_knows(sandboxes: Sandboxes) -> None:
    await run(sandboxes, GOOD, "1")
    [pid] = sandboxes.pids
    environment = psutil.Process(pid).environ()
    assert environment.keys() == {"PYTHONPATH", "TZ"}
