"""Publishing one message from two processes at once (J5)."""

import asyncio

import pytest

from broker.core.log.messages import Stored
from broker.db.driver.statements import BEGIN
from broker.features.deduplication import identities
from tests.features.deduplication.test_identities import append, id_seqs, request
from tests.fixtures.log import Log
from tests.interleavings.steps import changed, open_transaction, until_waiting


async def _both(log: Log) -> list[list[int]]:
    """The second is asked before the first has committed."""
    async with open_transaction(log.database) as first:
        answers = await append(log, request("a1", "b1"), connection=first)
        second = asyncio.create_task(append(log, request("b2", "c1")))
        await until_waiting(log.database)
    answers += await second
    return [list(answer.id_seqs) for answer in answers if isinstance(answer, Stored)]


async def test_whoever_comes_second_waits_and_finds_the_first(log: Log) -> None:
    assert await _both(log) == [[1, 2], [2, 3]]
    assert await log.pull_texts() == ["a1", "b1", "c1"]


async def test_without_the_lock_before_it_looks_it_would_store_the_message_twice(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "_LOCK_HEAD", changed(identities._LOCK_HEAD, "FOR NO KEY UPDATE", ""))
    assert await _both(log) == [[1, 2], [3, 4]]
    assert await log.pull_texts() == ["a1", "b1", "b2", "c1"]


async def test_what_is_undone_is_known_to_nobody(log: Log) -> None:
    async with log.database.hot() as first:
        await first.run((BEGIN, {}))
        await append(log, request("a1"), connection=first)
        await first.close()
    assert await id_seqs(log, "a2") == [1]
    assert await log.pull_texts() == ["a2"]


async def test_what_was_stored_and_not_answered_is_answered_when_it_is_sent_again(log: Log) -> None:
    """The connection is lost, or the process killed, behind the commit: whoever asks again has the first id."""
    async with log.database.hot() as lost:
        task = asyncio.create_task(append(log, request("a1", "b1"), connection=lost))
        await asyncio.sleep(0)  # it is sent
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    first = await id_seqs(log, "a2", "b2")
    assert await id_seqs(log, "b3", "a3") == [first[1], first[0]]
    assert len(await log.pull_texts()) == 2
