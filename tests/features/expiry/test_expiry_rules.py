"""What is past its time is so when a claim has its locks, and counts in one claim alone (docs/decisions/0049).

As in test_claim_rules.py each test is run a second time with its rule taken out.
"""

import asyncio

import pytest

from broker.core.claiming.transaction.request import ClaimRequest
from tests.fixtures.log import SECOND, Log, texts
from tests.interleavings.steps import lock_rows, open_transaction, paused, until_waiting
from tests.interleavings.test_claim_rules import replaced


async def a_claim_that_waited_hands_out_nothing_past_its_time(log: Log) -> None:
    await log.publish("a", ttl=2 * SECOND)
    await log.publish("b")
    now = log.start
    async with open_transaction(log.database) as other:
        await lock_rows(other, "cursors")
        claim = asyncio.create_task(log.claim(clock=lambda: now))
        await until_waiting(log.database)
        now += 3 * SECOND
    claimed = await claim
    assert (texts(claimed.deliveries[0]), claimed.past) == (["b"], 1)


async def test_a_claim_that_waited_hands_out_nothing_past_its_time(log: Log) -> None:
    await a_claim_that_waited_hands_out_nothing_past_its_time(log)


async def test_it_would_if_the_time_were_that_of_its_beginning(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClaimRequest, "handed_out_at", lambda request: request.now)
    with pytest.raises(AssertionError, match="'a', 'b'"):
        await a_claim_that_waited_hands_out_nothing_past_its_time(log)


async def two_claims_count(log: Log, *, in_turn: bool) -> list[int]:
    """How many messages each of two at once finds past their time; `in_turn`: the second waits for the first."""
    await log.publish("a", "b", ttl=SECOND)
    now = log.start + SECOND
    async with paused(log.database, before="UPDATE cursors") as first:
        first_claim = asyncio.create_task(log.claim(now=now, connection=first, gives_up_expired=True))
        await first.reached.wait()
        second_claim = asyncio.create_task(log.claim(now=now, gives_up_expired=True))
        await (until_waiting(log.database) if in_turn else second_claim)
        first.go.set()
        return [(await first_claim).past, (await second_claim).past]


async def test_two_claims_count_it_once(log: Log) -> None:
    assert await two_claims_count(log, in_turn=True) == [2, 0]
    assert [open_ for _, _, open_ in await log.attempts()] == ["11"]


async def test_they_would_count_it_twice_without_the_lock_of_the_cursor(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, "_LOCK_CURSORS", "FOR UPDATE", "")
    assert await two_claims_count(log, in_turn=False) == [2, 2]
