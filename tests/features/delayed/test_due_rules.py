"""Publishing what is due, beside those who cancel it and other processes at the same work (J1)."""

import asyncio

import pytest

from broker.features.delayed import rows as scheduled_messages
from broker.features.delayed.rows import append_due, cancel_scheduled
from tests.features.delayed.test_scheduled_messages import FIRST_ID_SEQ, publish_due, schedule
from tests.fixtures.log import SECOND, Log, texts
from tests.interleavings.steps import changed, open_transaction, paused, until_waiting


async def test_a_cancel_waits_for_the_append_and_comes_too_late(log: Log) -> None:
    await schedule(log, ("a", 1))
    at = log.start + SECOND
    async with paused(log.database, before="scheduled_ids") as appending, log.session() as other:
        append = asyncio.create_task(append_due(appending, shard_id=log.shard_id, now=at))
        await appending.reached.wait()
        cancel = asyncio.create_task(
            cancel_scheduled(other, shard_id=log.shard_id, id_seq=FIRST_ID_SEQ + 1, now=log.start)
        )
        await until_waiting(log.database)
        appending.go.set()
        assert await append == [at]
        assert not await cancel
    assert await log.pull_texts(now=at) == ["a"]


async def test_what_is_being_cancelled_is_passed_by(log: Log) -> None:
    await schedule(log, ("a", 1), ("b", 1))
    at = log.start + SECOND
    async with open_transaction(log.database) as cancelling:
        assert await cancel_scheduled(cancelling, shard_id=log.shard_id, id_seq=FIRST_ID_SEQ + 1, now=log.start)
        assert await publish_due(log, at) == 1
    assert await publish_due(log, at) == 0
    assert await log.pull_texts(now=at) == ["b"]


@pytest.mark.parametrize("ruled", [True, False])
async def test_one_process_at_a_time_takes_what_is_due_in_a_shard(
    log: Log, monkeypatch: pytest.MonkeyPatch, ruled: bool
) -> None:
    """Without the rule a second one takes the later messages of a key, and appends them first."""
    if not ruled:
        without = changed(scheduled_messages._LOCK_HEADS, "FOR NO KEY UPDATE", "")
        monkeypatch.setattr(scheduled_messages, "_LOCK_HEADS", without)
    await schedule(log, ("first", 1), ("second", 2), key="k")
    at = log.start + 3 * SECOND
    async with paused(log.database, before="scheduled_ids") as appending:
        append = asyncio.create_task(append_due(appending, shard_id=log.shard_id, now=at, most=1))
        await appending.reached.wait()
        other = asyncio.create_task(publish_due(log, at))
        if ruled:
            await until_waiting(log.database)
        else:
            assert await other == 1
        appending.go.set()
        await append
        assert await other == 1
    assert texts(await log.pull(now=at)) == (["first", "second"] if ruled else ["second", "first"])


async def test_what_is_undone_still_waits(log: Log) -> None:
    await schedule(log, ("a", 1))
    at = log.start + SECOND
    async with paused(log.database, before="COMMIT") as appending:
        append = asyncio.create_task(append_due(appending, shard_id=log.shard_id, now=at))
        await appending.reached.wait()
        append.cancel()  # as when the process ends there
        with pytest.raises(asyncio.CancelledError):
            await append
    assert await log.pull_texts(now=at) == []
    assert await publish_due(log, at) == 1
    assert await log.pull_texts(now=at) == ["a"]
