"""Who is refused for want of a quota, and calls again at once, is answered at a pace (E4, M1)."""

import asyncio

import pytest

from broker.domain.errors import QuotaExceeded
from broker.domain.quota import ProjectQuotas
from broker.runtime.connections import Connections
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.quotas import Quotas
from broker.runtime.refusal_pace import AT_ONCE, MOST_SECONDS, REFUSALS_A_SECOND, RefusalPace
from broker.store.driver.database import Database

_P = "projects/p"


def test_some_refusals_are_told_at_once_and_more_at_a_pace_of_each_project() -> None:
    now = 1_000.0
    pace = RefusalPace(ticks=lambda: now)
    assert [pace.delay(_P) for _ in range(AT_ONCE + 1)] == pytest.approx([0.0] * (AT_ONCE + 1), abs=1e-9)
    assert [pace.delay(_P) for _ in range(3)] == pytest.approx([n / REFUSALS_A_SECOND for n in (1, 2, 3)])
    assert pace.delay("projects/other") == 0
    now += 10
    assert pace.delay(_P) == 0


def test_nobody_waits_for_long_however_many_are_refused() -> None:
    now = 1_000.0
    pace = RefusalPace(ticks=lambda: now)
    for _ in range(1_000):
        assert pace.delay(_P) <= MOST_SECONDS + 1e-6
    assert pace.delay(_P) >= MOST_SECONDS / 2
    now += MOST_SECONDS + 1
    pace.forget()
    assert pace.delay(_P) == 0


async def test_what_a_quota_refuses_waits_its_turn_and_what_passes_does_not(database: Database) -> None:
    limits = ProjectQuotas({"publishMessages": 0, "subscribeMessages": 1})
    quotas = Quotas(database, DatabaseClock(database), defaults=limits, ticks=lambda: 1_000.0)
    refusals = [
        asyncio.create_task(quotas.check(quotas.publishing(_P, ""), _P)) for _ in range(int(REFUSALS_A_SECOND) * 2)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    told = [task.done() for task in refusals]
    assert told[:AT_ONCE] == [True] * AT_ONCE
    assert not told[-1]
    assert await quotas.check(quotas.subscribing(_P, ""), _P) == 1_000.0
    with pytest.raises(QuotaExceeded):
        await refusals[-1]
    await asyncio.gather(*refusals, return_exceptions=True)


async def test_refused_connections_wait_their_turn_as_well() -> None:
    connections = Connections({_P: 0}.get)
    refusals = [asyncio.create_task(connections.open(_P)) for _ in range(int(REFUSALS_A_SECOND) * 2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert refusals[0].done()
    assert not refusals[-1].done()
    assert {type(error) for error in await asyncio.gather(*refusals, return_exceptions=True)} == {QuotaExceeded}
