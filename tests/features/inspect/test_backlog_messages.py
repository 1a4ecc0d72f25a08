"""The messages that a subscription has, in their states (F3)."""

from dataclasses import astuple, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.backlog.delivery_state import BACKLOG, LISTED, DeliveryState
from broker.core.backlog.outcome import Outcome
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.fairness.resource_turns import INSPECTIONS_AT_ONCE, ResourceTurns
from broker.features.inspect.backlog_page import (
    MAX_SCANNED,
    BacklogList,
    BacklogMessage,
    BacklogPage,
    BacklogPosition,
    parse_backlog_page,
)
from broker.features.inspect.backlog_service import BacklogMessageService
from broker.model.errors import FailedPrecondition, InvalidArgument
from broker.model.page import page_token
from tests.fixtures.dead_letters import make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, RETENTION, SECOND, Log

OUTSTANDING, RETRYING, EXHAUSTED, BLOCKED, WAITING = LISTED


class _Clock(DatabaseClock):
    """At the time that the test says."""

    def __init__(self, database: Database, moment: datetime) -> None:
        super().__init__(database)
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


class Listed:
    """What the service lists of the log's subscription."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.clock = _Clock(log.database, log.start)
        self.service = BacklogMessageService(
            log.database, ReplicaReads(log.database), self.clock, ResourceTurns(at_once=INSPECTIONS_AT_ONCE)
        )

    async def page(self, size: int = 1000, later: timedelta = timedelta(0), **page: Any) -> BacklogList:
        self.clock.moment = self.log.start + later
        return await self.service.list_messages(self.log.subscription.name, BacklogPage(size, **page))

    async def all(self, size: int = 1000, later: timedelta = timedelta(0), **page: Any) -> list[BacklogMessage]:
        """Of all pages; each token is one that can be given."""
        found, start = [], None
        while True:
            one = await self.page(size, later, start=start, **page)
            assert len(one.found) <= size
            found += one.found
            if one.rest is None:
                return found
            token = page_token(*astuple(one.rest))
            start = parse_backlog_page(1, token, states="", filter_text="", contains="").start
            assert start == one.rest

    async def reported(self, **options: Any) -> list[tuple[str, DeliveryState, int]]:
        return [(m.data.decode(), m.state, m.attempt_number) for m in await self.all(**options)]


@pytest.fixture
def listed(log: Log) -> Listed:
    return Listed(log)


async def test_messages_are_listed_with_how_they_stand_and_nothing_is_changed(listed: Listed, log: Log) -> None:
    await log.publish("a", "b", "c")
    await log.publish("d", now=log.start + SECOND)
    [delivery] = await log.pull(3)
    await log.acknowledge(delivery, [1])
    await log.modify_ack_deadline(delivery, [2], log.start + 60 * SECOND, nack=True)
    before = [await log.rows(f"SELECT * FROM {table}") for table in ("delivery_attempts", "cursors")]
    assert await listed.reported(later=SECOND) == [("a", OUTSTANDING, 1), ("c", RETRYING, 1), ("d", WAITING, 0)]
    out, retried, waiting = await listed.all(later=SECOND)
    assert (out.at, out.delivered_at) == (log.start + ACK_DEADLINE, log.start)
    assert (retried.at, waiting.at) == (log.start + 60 * SECOND, None)
    assert (out.publish_time, waiting.publish_time) == (log.start, log.start + SECOND)
    assert await listed.reported(later=ACK_DEADLINE) == [("a", RETRYING, 1), ("c", RETRYING, 1), ("d", WAITING, 0)]
    assert [await log.rows(f"SELECT * FROM {table}") for table in ("delivery_attempts", "cursors")] == before


async def test_of_a_key_each_message_is_listed_with_its_own_attempts(listed: Listed, log: Log) -> None:
    """Also while others of its response are outstanding."""
    log.subscription = replace(log.subscription, enable_message_ordering=True)
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    await log.publish("a", "b", key="k")
    [first] = await log.pull(ordered=True)
    await log.nack(first, [1])
    late = log.start + ACK_DEADLINE
    assert await listed.reported() == [("a", OUTSTANDING, 1), ("b", BLOCKED, 1)]
    await log.pull(1, ordered=True, now=late)
    assert await listed.reported(later=ACK_DEADLINE) == [("a", OUTSTANDING, 2), ("b", BLOCKED, 1)]


async def test_what_is_past_its_time_is_not_listed_but_while_a_consumer_has_it(listed: Listed, log: Log) -> None:
    await log.publish("a", "b", ttl=5 * SECOND)
    [delivery] = await log.pull(1)
    assert await listed.reported(later=5 * SECOND) == [("a", OUTSTANDING, 1)]
    await log.nack(delivery)
    assert await listed.reported(later=4 * SECOND) == [("a", RETRYING, 1), ("b", WAITING, 0)]
    assert await listed.reported(later=5 * SECOND) == []


async def test_what_is_held_by_a_key_names_the_message_that_it_waits_for(listed: Listed, log: Log) -> None:
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    for text in ("k1", "k2", "k3"):
        await log.publish(text, key="k")
    await log.publish("plain")
    await log.publish("l1", key="l")
    [first] = await log.pull(1, ordered=True)
    await log.pull(1, ordered=True)  # passes by what waits for the key
    await log.publish("k4", key="k")
    expected = {
        "k1": (OUTSTANDING, None),
        "k2": (BLOCKED, 1),
        "k3": (BLOCKED, 1),
        "plain": (OUTSTANDING, None),
        "l1": (WAITING, None),
        "k4": (BLOCKED, 1),
    }
    assert {m.data.decode(): (m.state, m.held_by) for m in await listed.all()} == expected
    assert {m.data.decode(): (m.state, m.held_by) for m in await listed.all(size=1)} == expected
    held = await listed.reported(states={BLOCKED})
    assert sorted(held) == [("k2", BLOCKED, 0), ("k3", BLOCKED, 0), ("k4", BLOCKED, 0)]
    await log.nack(first, now=log.start + SECOND)
    assert [text for text, state, _ in await listed.reported() if state is RETRYING] == ["k1"]


async def test_what_came_back_is_listed_although_it_is_older_than_what_is_out_of_its_key(
    listed: Listed, log: Log
) -> None:
    log.subscription = replace(log.subscription, enable_message_ordering=True)
    dead_letters = await make_dead_letters(log, ordered=True)
    await dead_letters.give_up("a", key="k")
    await log.publish("b", "c", key="k")
    await log.pull(ordered=True)
    assert await dead_letters.redrive() == [Outcome.REDRIVEN]
    expected = [("a", BLOCKED, 0), ("b", OUTSTANDING, 1), ("c", OUTSTANDING, 1)]
    assert await listed.reported() == expected
    assert await listed.reported(size=1) == expected


async def test_pages_of_any_size_have_the_same_messages(listed: Listed, log: Log) -> None:
    for number in range(6):
        await log.publish(*(f"{number}-{n}" for n in range(7)))
    await log.acknowledge((await log.pull(10))[0], [0, 4])
    await log.pull(9)
    texts = [text for text, *_ in await listed.reported()]
    assert len(texts) == len(set(texts)) == 40
    for size in (1, 3, 8, 39):
        assert [text for text, *_ in await listed.reported(size=size)] == texts


async def test_only_what_is_asked_for_is_listed(listed: Listed, log: Log) -> None:
    await log.publish("apple", "pear")
    await log.pull(1)
    await log.execute('UPDATE message_batches SET attributes = ARRAY[NULL, \'{"env": "prod"}\']::jsonb[]')
    assert await listed.reported(states={OUTSTANDING}) == [("apple", OUTSTANDING, 1)]
    assert await listed.reported(states={WAITING}) == [("pear", WAITING, 0)]
    assert await listed.reported(states={RETRYING}) == []
    assert await listed.reported(contains="ppl") == [("apple", OUTSTANDING, 1)]
    assert await listed.reported(contains="ear") == [("pear", WAITING, 0)]
    assert await listed.reported(filter='attributes.env = "prod"') == [("pear", WAITING, 0)]
    with pytest.raises(InvalidArgument):
        await listed.page(filter="no filter")


async def test_what_is_too_old_or_not_for_the_subscription_is_not_listed(listed: Listed, log: Log) -> None:
    await log.publish("old")
    await log.pull(1)
    await log.publish("older")
    await log.publish("new", now=log.start + 2 * SECOND)
    assert [text for text, *_ in await listed.reported(later=RETENTION + SECOND)] == ["new"]
    path = '$."env" == "prod"'
    await log.execute(f"""UPDATE subscriptions SET filter = 'attributes.env = "prod"', filter_path = '{path}'""")
    assert [text for text, *_ in await listed.reported()] == ["old"]


async def test_a_walk_stops_after_ten_thousand_messages_and_goes_on_from_there(listed: Listed, log: Log) -> None:
    for _ in range(11):
        await log.publish(*["x"] * 1000)
    await log.publish("needle")
    await log.pull(1000)
    first = await listed.page(contains="needle")
    assert (first.found, first.scanned) == ([], MAX_SCANNED)
    assert first.rest is not None
    second = await listed.page(contains="needle", start=first.rest)
    assert ([m.data for m in second.found], second.rest) == ([b"needle"], None)
    waiting = await listed.page(contains="needle", states={WAITING})
    assert waiting.scanned == MAX_SCANNED


async def test_a_page_ends_before_it_is_too_large(listed: Listed, log: Log) -> None:
    for _ in range(3):
        await log.publish("x" * 6_000_000)
    await log.pull(2)
    assert [len((await listed.page()).found), len(await listed.all())] == [2, 3]


async def test_a_token_of_another_subscription_and_one_that_was_never_given_are_refused(listed: Listed) -> None:
    with pytest.raises(InvalidArgument, match="Invalid page token"):
        await listed.page(start=BacklogPosition(999))
    with pytest.raises(InvalidArgument, match="page_token=nonsense"):
        parse_backlog_page(1, "nonsense", states="", filter_text="", contains="")


def test_states_are_asked_for_by_their_names() -> None:
    page = parse_backlog_page(0, "", states="outstanding,Waiting", filter_text="", contains="")
    assert page.states == {OUTSTANDING, WAITING}
    assert parse_backlog_page(0, "", states="", filter_text="", contains="").states == BACKLOG
    with pytest.raises(InvalidArgument, match="state=gone"):
        parse_backlog_page(0, "", states="gone", filter_text="", contains="")
    with pytest.raises(InvalidArgument, match="1001 characters"):
        parse_backlog_page(0, "", states="", filter_text="", contains="x" * 1001)


async def test_a_detached_subscription_has_none(listed: Listed, log: Log) -> None:
    async with log.database.transaction() as connection:
        await subscriptions.detach_subscription(
            connection, subscription_id=log.subscription.subscription_id, now=log.start
        )
    with pytest.raises(FailedPrecondition):
        await listed.page()
