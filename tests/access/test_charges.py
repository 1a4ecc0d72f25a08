"""Callers who have no permission use up nobody's share but their own, whatever resources they name."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from broker.access.credentials import authenticator
from broker.api.generated.messages import request_of
from broker.api.limits.address_turns import ANSWER_COST, FREE_A_SECOND, FREE_AT_ONCE, MOST_WAITING, AddressTurns
from broker.app.guard import make_address_turns
from broker.fairness.loop_turns import LoopTurns
from broker.fairness.refusal_pace import ERRORS_AT_ONCE, RefusalPace
from broker.net.http2.frames import Flag, Kind, frame
from broker.observability.metrics.families import TURNS
from tests.api.grpc.wire import REQUEST, packed
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json
from tests.limits.crowd import connect

pytestmark = pytest.mark.asyncio(loop_scope="module")

VICTIM = "projects/victim"
TOPIC = f"{VICTIM}/topics/orders"
TEST = {"permissions": ["pubsub.topics.get"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(clone: Callable[[], Any]) -> AsyncIterator[Guarded]:
    with clone() as database_url:
        async with guarded(database_url) as running:
            await running.ok("PUT", TOPIC)
            yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stranger(broker: Guarded) -> Json:
    """The key of an account of projects/guarded that has no role."""
    return await broker.key(await broker.account("stranger", role=""))


def _turns(broker: Guarded, project: str) -> int:
    """How many turns of calls about resources a project had."""
    return broker.broker.core.counters.project(project)[TURNS["resource"]]


async def test_calls_that_need_no_permission_take_turns_of_their_callers_project(
    broker: Guarded, stranger: Json
) -> None:
    headers = broker.bearer(stranger)
    before = _turns(broker, VICTIM), _turns(broker, broker.project)
    await broker.ok("POST", f"{TOPIC}:testIamPermissions", TEST, headers=headers)
    assert (await broker.call("GET", f"{VICTIM}/operations/none", headers=headers)).status_code == 404
    peer = await connect(str(broker.client.base_url))
    path = b"/google.iam.v1.IAMPolicy/TestIamPermissions"
    fields = [(name, path if name == b":path" else value) for name, value in REQUEST]
    fields.append((b"authorization", headers["Authorization"].encode()))
    body = request_of("IAMPolicy.TestIamPermissions")(resource=TOPIC, permissions=TEST["permissions"])
    peer.send(peer.headers(1, fields), frame(Kind.DATA, Flag.END_STREAM, 1, packed(body.SerializeToString())))
    assert (await peer.answer(1)).status == 0
    peer.writer.close()
    assert (_turns(broker, VICTIM), _turns(broker, broker.project)) == (before[0], before[1] + 3)


async def test_calls_that_need_a_permission_take_turns_of_their_resources_project(broker: Guarded) -> None:
    before = _turns(broker, VICTIM)
    await broker.ok("GET", TOPIC)
    assert _turns(broker, VICTIM) == before + 1


async def test_calls_whose_permission_is_not_known_yet_leave_connections_to_the_others(
    broker: Guarded, stranger: Json
) -> None:
    await broker.ok("GET", f"{VICTIM}/topics")  # from now on it is known that the administrator may
    async with broker.database.transaction() as connection:
        await connection.execute(text("LOCK TABLE policies IN ACCESS EXCLUSIVE MODE"))
        headers = broker.bearer(stranger)
        guesses = [
            asyncio.create_task(broker.call("GET", f"{VICTIM}/topics/guess-{number}", headers=headers))
            for number in range(20)
        ]
        while not await _waiting(broker):  # noqa: ASYNC110  (nothing tells of locks)
            await asyncio.sleep(0.01)
        assert (await broker.call("GET", f"{VICTIM}/topics")).status_code == 200
    assert {(await guess).status_code for guess in guesses} == {403}


async def _waiting(broker: Guarded) -> int:
    """How many sessions wait for the lock on policies."""
    query = text(
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
        " WHERE datname = current_database() AND NOT granted AND relation = 'policies'::regclass"
    )
    async with broker.database.transaction() as connection:
        return int(await connection.scalar(query) or 0)


async def test_errors_of_strangers_do_not_delay_those_of_the_project_that_they_name(broker: Guarded) -> None:
    pace = broker.broker.calls.pace
    assert pace is not None
    for _ in range(ERRORS_AT_ONCE + 1):
        assert (await broker.call("GET", TOPIC, headers={})).status_code == 401
    assert pace.delay(VICTIM) == 0.0
    assert pace.delay("127.0.0.1") >= 0.0


@pytest.mark.parametrize(
    "path", ["healthz", "openapi.json", "nothing"], ids=["health", "the specification", "no page"]
)
async def test_pages_wait_for_turns_of_their_address_once_they_are_many(
    broker: Guarded, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _record(broker, monkeypatch)
    for _ in range(FREE_AT_ONCE + 1):
        await broker.client.get(f"/{path}")
    assert asked == []
    _use_up(broker, "address 127.0.0.1")
    await broker.client.get(f"/{path}")
    assert asked == [("address 127.0.0.1", ANSWER_COST)]


async def test_tokens_are_verified_in_turns_of_their_address_once_they_are_many(
    broker: Guarded, stranger: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _record(broker, monkeypatch)
    _use_up(broker, "address 127.0.0.1")
    headers = broker.bearer(stranger, groups=["x" * 100] * 50)
    for _ in range(2):  # the second time it is known
        await broker.ok("POST", f"{TOPIC}:testIamPermissions", TEST, headers=headers)
    [(who, cost)] = asked
    assert who == "address 127.0.0.1"
    assert cost > 150 * len(headers["Authorization"])


async def test_errors_wait_for_turns_of_their_callers_project_once_they_are_many(
    broker: Guarded, stranger: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = broker.bearer(stranger)
    assert (await broker.call("GET", TOPIC, headers=headers)).status_code == 403
    asked = _record(broker, monkeypatch)
    _use_up(broker, broker.project)
    assert (await broker.call("GET", TOPIC, headers=headers)).status_code == 403
    assert (await broker.call("GET", f"{VICTIM}/topics/none")).status_code == 404  # of the administrator
    assert asked == [(broker.project, ANSWER_COST)]


def _record(broker: Guarded, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Hashable, int]]:
    """The turns of the event loop that are asked for from now on; nobody has asked for much before."""
    turns, asked = broker.broker.core.loop_turns, list[tuple[Hashable, int]]()
    turn = turns.turn

    async def recorded(who: Hashable, cost: int) -> None:
        asked.append((who, cost))
        await turn(who, cost)

    monkeypatch.setattr(turns, "turn", recorded)
    monkeypatch.setattr(broker.broker.address_turns, "_often", RefusalPace(a_second=FREE_A_SECOND, at_once=1_000))
    return asked


def _use_up(broker: Guarded, who: str) -> None:
    """What somebody has without a turn."""
    often = broker.broker.address_turns._often
    while often.delay(who) < 0.5:
        pass


async def test_who_asks_for_pages_without_a_pause_leaves_the_loop_to_others_between_them() -> None:
    turns, order = make_address_turns(LoopTurns()), list[str]()

    async def ask() -> None:
        await turns.to_answer(("192.0.2.1", 1234))
        order.append("page")

    async def others() -> None:
        while order.count("page") < FREE_AT_ONCE + 10:
            order.append("other")
            busy_until = time.perf_counter() + 50e-6  # else the loop is taken to be idle
            while time.perf_counter() < busy_until:
                pass
            await asyncio.sleep(0)

    await asyncio.gather(others(), *(ask() for _ in range(FREE_AT_ONCE + 10)))
    assert order.count("other") > 5 * 10


async def test_known_tokens_are_bounded_in_bytes(
    broker: Guarded, stranger: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "MAX_KNOWN_BYTES", 50_000)
    access = broker.broker.guard.access
    assert access is not None
    for number in range(12):
        headers = broker.bearer(stranger, number=number, padding="x" * 8_000)
        await broker.ok("POST", f"{TOPIC}:testIamPermissions", TEST, headers=headers)
        assert sum(map(len, access.authenticator._known)) <= 50_000


async def test_a_path_or_a_query_that_is_far_too_long_is_refused_before_it_is_read(broker: Guarded) -> None:
    long = await broker.call("GET", "projects/" + "%61" * 2_000 + "/topics", headers={})
    assert (long.status_code, "longer than 4096 bytes" in long.text) == (414, True)
    many = await broker.call("GET", f"{VICTIM}/topics?" + "&".join(f"a{n}=1" for n in range(201)), headers={})
    assert (many.status_code, "at most 200 parameters" in many.text) == (400, True)


async def test_who_has_the_address_of_a_flood_waits_behind_few_of_its_requests() -> None:
    loop_turns = LoopTurns()
    turns = AddressTurns(loop_turns, RefusalPace(a_second=1e-6, at_once=0))
    loop_turns.begin("somebody", ANSWER_COST)  # from now on who comes waits
    asking = [asyncio.create_task(turns.to_answer(("192.0.2.1", 1234))) for _ in range(3 * MOST_WAITING)]
    await asyncio.sleep(0)
    assert loop_turns.waiting("address 192.0.2.1") == MOST_WAITING
    await asyncio.gather(*asking)
    assert loop_turns.waiting("address 192.0.2.1") == 0
