"""What a page of the dead letters of a subscription reads."""

from dataclasses import replace
from typing import Any

import pytest

from broker.features.dead_letters.dead_letter_groups import _READ_DEAD_LETTERS
from broker.features.dead_letters.dead_letter_list import DeadLetterPage, Trait
from broker.features.dead_letters.rows import _READ_DEAD_LETTER_MESSAGES, AskedDeadLetters, list_dead_letters
from tests.fixtures.dead_letters import make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, Log
from tests.query_plans.recorder import Recorder

COUNT = 700


@pytest.fixture
async def asked(log: Log) -> AskedDeadLetters:
    """The options of a page of COUNT dead letters."""
    dead_letters = await make_dead_letters(log)
    await dead_letters.give_up(*map(str, range(COUNT)))
    return AskedDeadLetters(
        subscription_id=log.subscription.subscription_id,
        shard_ids=[log.shard_id],
        filter_path=None,
        body_path=None,
        page=DeadLetterPage(10),
        now=log.start + ACK_DEADLINE,
    )


def _read(recorder: Recorder) -> list[int]:
    """How many dead letters each read was to bring."""
    return [values["max_scanned"] for statement, values in recorder.every if statement is _READ_DEAD_LETTERS]


@pytest.mark.one_server("on many, dead letters are read by another statement")
async def test_a_page_reads_little_more_than_it_shows(log: Log, asked: AskedDeadLetters) -> None:
    async with log.session() as session:
        recorder = Recorder(session)
        page = await list_dead_letters(recorder, asked)  # type: ignore[arg-type]
    assert (len(page.found), page.scanned) == (10, 10)
    assert _read(recorder) == [60]
    assert len(recorder.sent[_READ_DEAD_LETTER_MESSAGES]["seqs"]) < 60


@pytest.mark.one_server("on many, dead letters are read by another statement")
async def test_a_page_that_finds_little_reads_more_at_a_time(log: Log, asked: AskedDeadLetters) -> None:
    none = replace(asked, page=DeadLetterPage(10, chosen={Trait("status"): "503"}))
    async with log.session() as session:
        recorder = Recorder(session)
        page = await list_dead_letters(recorder, none)  # type: ignore[arg-type]
    assert (page.found, page.scanned, page.rest) == ([], COUNT, None)
    assert _read(recorder) == [60, 120, 240, 480]


@pytest.mark.parametrize("size", [1, 7, 449, 450, 1_000])
async def test_pages_have_each_dead_letter_once(log: Log, asked: AskedDeadLetters, size: int) -> None:
    found: list[Any] = []
    async with log.session() as session:
        page = await list_dead_letters(session, replace(asked, page=DeadLetterPage(size)))
        found += page.found
        while page.rest is not None:
            asked_next = replace(asked, page=DeadLetterPage(size, start=page.rest))
            page = await list_dead_letters(session, asked_next)
            found += page.found
    assert [int(each.data) for each in found] == list(range(COUNT))
