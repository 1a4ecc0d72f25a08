"""What a changed filter promises of every process, whether it has heard of the change or not (decision 0077)."""

import asyncio
from collections.abc import Iterable
from datetime import datetime

import pytest

from broker.core.claiming.transaction import claim as claims
from broker.core.claiming.transaction.request import Gone
from broker.features.filters import change_rows as filter_changes
from tests.fixtures.changed_filters import PROD, TEST, claim, known, publish, set_filter
from tests.fixtures.log import SECOND, Log, texts
from tests.interleavings.steps import open_transaction, paused, until_waiting


async def a_process_that_has_not_heard_of_it_passes_nothing(log: Log) -> None:
    await set_filter(log, PROD, log.start)
    stale = await known(log)
    await set_filter(log, TEST, log.start + SECOND)
    await publish(log, "after", log.start + 2 * SECOND)
    got = await claim(log, stale)
    assert (texts(got.deliveries[0]), got.rest) == ([], Gone())
    got = await claim(log, await known(log))
    assert texts(got.deliveries[0]) == ["test after"]


async def test_a_process_that_has_not_heard_of_it_passes_nothing(log: Log) -> None:
    await a_process_that_has_not_heard_of_it_passes_nothing(log)


async def test_it_would_if_claims_did_not_ask_the_cursor(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_is_usable", lambda row, target: not row.paused)
    with pytest.raises(AssertionError, match="prod after"):
        await a_process_that_has_not_heard_of_it_passes_nothing(log)


async def test_a_process_that_knows_no_filter_at_all_passes_nothing_either(log: Log) -> None:
    stale = await known(log)
    await set_filter(log, TEST, log.start)
    await publish(log, "after", log.start + SECOND)
    assert (await claim(log, stale)).rest == Gone()
    assert texts((await claim(log, await known(log))).deliveries[0]) == ["test after"]


async def clocks_that_are_behind_change_no_verdict(log: Log) -> None:
    """A publisher whose clock is ahead of that of the change, and one whose clock is behind it."""
    await set_filter(log, PROD, log.start)
    await publish(log, "before", log.start + 10 * SECOND)
    await set_filter(log, TEST, log.start + 5 * SECOND)
    await publish(log, "after", log.start)
    got = await claim(log, await known(log))
    assert sorted(texts(got.deliveries[0])) == ["prod before", "test after"]


async def test_clocks_that_are_behind_change_no_verdict(log: Log) -> None:
    await clocks_that_are_behind_change_no_verdict(log)


async def test_one_would_if_the_change_did_not_come_behind_the_last_message(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_looking(times: Iterable[datetime], now: datetime) -> datetime:
        return now

    monkeypatch.setattr(filter_changes, "change_time", without_looking)
    with pytest.raises(AssertionError, match="test before"):
        await clocks_that_are_behind_change_no_verdict(log)


async def a_slow_clock_publishes_no_earlier(log: Log) -> None:
    await set_filter(log, PROD, log.start)
    await set_filter(log, TEST, log.start + 10 * SECOND)
    await publish(log, "after", log.start + 5 * SECOND)
    got = await claim(log, await known(log))
    assert texts(got.deliveries[0]) == ["test after"]


async def test_a_slow_clock_publishes_no_earlier(log: Log) -> None:
    await a_slow_clock_publishes_no_earlier(log)


async def test_it_would_if_the_change_did_not_move_the_shards_on(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave(*arguments: object) -> None:
        return None

    monkeypatch.setattr(filter_changes, "_publish_no_earlier", leave)
    with pytest.raises(AssertionError, match="prod after"):
        await a_slow_clock_publishes_no_earlier(log)


async def test_a_claim_under_way_ends_before_the_change_and_has_seen_earlier_messages_only(log: Log) -> None:
    await set_filter(log, PROD, log.start)
    await publish(log, "before", log.start + SECOND)
    async with paused(log.database, before="COMMIT") as claiming:
        early = asyncio.create_task(claim(log, await known(log), claiming))
        await claiming.reached.wait()
        changing = asyncio.create_task(set_filter(log, TEST, log.start + 2 * SECOND))
        await until_waiting(log.database)
        claiming.go.set()
        assert texts((await early).deliveries[0]) == ["prod before"]
        await changing
    await publish(log, "after", log.start + 3 * SECOND)
    assert texts((await claim(log, await known(log))).deliveries[0]) == ["test after"]


async def test_what_is_being_published_when_the_filter_is_changed_is_an_earlier_message(log: Log) -> None:
    await set_filter(log, PROD, log.start)
    async with open_transaction(log.database) as slow:
        await publish(log, "during", log.start + SECOND, slow)
        changing = asyncio.create_task(set_filter(log, TEST, log.start))
        await until_waiting(log.database)
    await changing
    assert texts((await claim(log, await known(log))).deliveries[0]) == ["prod during"]


async def test_a_claim_that_waited_for_the_change_does_not_use_what_it_knew(log: Log) -> None:
    await set_filter(log, PROD, log.start)
    stale = await known(log)
    async with open_transaction(log.database) as slow:
        await publish(log, "during", log.start + SECOND, slow)
        changing = asyncio.create_task(set_filter(log, TEST, log.start))
        await until_waiting(log.database)  # it has the cursor, and waits for the head of the shard
        late = asyncio.create_task(claim(log, stale))
        await until_waiting(log.database, 2)
    await changing
    assert (await late).rest == Gone()
