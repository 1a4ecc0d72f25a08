"""The lag board: samples, orders, filters and pages."""

import logging
import random
from datetime import timedelta
from typing import Any

import pytest

from broker.core.catalog import push_state_rows as push_states
from broker.core.lag.lag import LagState
from broker.db.driver.database import Database
from broker.features.lag_board.list_page import COUNTS, ORDERS, parse_order
from broker.features.lag_board.rest import lag_json
from broker.features.lag_board.sample_rows import SamplePass, Window, write_orders
from broker.features.lag_board.sampler import LagSampler
from broker.features.lag_board.service import LagEntry, in_order
from broker.model.errors import InvalidArgument, Unavailable
from broker.model.push_config import PushConfig
from broker.model.push_state import FailureRun, LateAnswers, PushState
from broker.model.subscription import DeadLetterPolicy
from broker.model.timestamps import format_timestamp
from broker.observability.state_changes import StateChanges
from tests.features.lag_board.conftest import INTERVAL, Board, names_of
from tests.fixtures.log import SECOND, Log

MINUTE = timedelta(minutes=1)


async def _claimed_up_to(log: Log, name: str, seq: int) -> None:
    """The subscription has no backlog before `seq`."""
    await log.execute(
        f"UPDATE cursors AS c SET next_seq = {seq} FROM subscriptions AS s"
        f" WHERE s.subscription_id = c.subscription_id AND s.name = 'projects/p/subscriptions/{name}'"
    )


async def test_the_oldest_message_comes_first_and_then_those_at_rest_by_name(board: Board, log: Log) -> None:
    for name in ("b", "a", "c"):
        await board.add(name)
    await log.publish("one", "two")
    await log.publish("three", now=log.start + SECOND)
    for name in ("a", "b"):
        await _claimed_up_to(log, name, 4)
    await _claimed_up_to(log, "c", 3)
    await log.execute(f"UPDATE cursors SET next_publish_time = '{log.start + SECOND}' WHERE next_seq = 3")
    await board.sample(MINUTE)
    found = await board.page()
    subscription = log.subscription.name.rpartition("/")[2]
    assert names_of(found.entries) == [subscription, "c", "a", "b"]
    assert [entry.sample and entry.sample.undelivered_messages for entry in found.entries] == [3, 1, 0, 0]
    assert (found.total, found.sampled_at, found.next_page_token) == (4, log.start + MINUTE, "")
    first = found.entries[0].sample
    assert first is not None
    assert (first.oldest_unacked_at, first.published_messages) == (log.start, 3)
    assert first.details == {
        "verdict": "No client is pulling or streaming: 3 messages are not acknowledged and none of them is"
        " outstanding; the oldest is 1m old."
    }


async def test_a_sample_has_the_rates_since_the_one_before(board: Board, log: Log) -> None:
    await board.sample()
    first = (await board.only()).sample
    assert first is not None
    assert (first.incoming_rate, first.outgoing_rate) == (None, None)
    await log.publish(*"abcdefgh")
    [delivery] = await log.pull(5)
    await log.acknowledge(delivery)
    await board.sample()
    rates = (await board.only()).sample
    assert rates is not None
    assert (rates.incoming_rate, rates.outgoing_rate) == (0.8, 0.5)
    await board.sample()
    later = (await board.only()).sample
    assert later is not None
    assert (later.incoming_rate, later.outgoing_rate) == (0, 0)
    [delivery] = await log.pull(3)
    await log.acknowledge(delivery)
    for _ in range(4):
        await board.sample()
    await log.publish("a", "b")
    await board.sample()
    after_rest = (await board.only()).sample
    assert after_rest is not None
    assert after_rest.incoming_rate == 0.2  # the passes in between have found that nothing was published
    assert after_rest.outgoing_rate == 0


async def test_what_is_at_rest_is_not_written_again_and_what_moves_is(board: Board, log: Log) -> None:
    subscription = await board.add("at-rest")
    await board.sample()
    await board.sample()
    written = await log.rows("SELECT subscription_id, sampled_at FROM lag_samples ORDER BY 1")
    orders = await log.rows("SELECT count(*), max(began_at) FROM lag_orders")
    await board.sample()
    assert await log.rows("SELECT subscription_id, sampled_at FROM lag_samples ORDER BY 1") == written
    assert await log.rows("SELECT count(*), max(began_at) FROM lag_orders") == orders
    assert (await board.page()).sampled_at == board.clock.moment
    await log.publish("a")
    await _claimed_up_to(log, "at-rest", 2)
    await board.sample()
    [entry] = (await board.page(where="name=at-rest")).entries
    assert entry.sample is not None
    assert (entry.sample.sampled_at, entry.sample.incoming_rate) == (board.clock.moment, 0.1)
    assert entry.sample.subscription_id == subscription.subscription_id


async def test_new_subscriptions_are_listed_before_they_are_sampled_and_deleted_ones_are_not(
    board: Board, log: Log
) -> None:
    gone = await board.add("gone")
    assert (await board.page()).sampled_at is None
    assert [entry.sample for entry in (await board.page()).entries] == [None, None]
    await board.sample()
    await board.delete(gone)
    await board.add("z-new")
    await board.add("new")
    found = await board.page()
    subscription = log.subscription.name.rpartition("/")[2]
    assert names_of(found.entries) == [subscription, "new", "z-new"]
    assert [entry.sample is None for entry in found.entries] == [False, True, True]
    assert found.total == 3
    assert await board.names(where="name:new") == ["new", "z-new"]
    assert await board.names(where="undeliveredMessages>=0") == [subscription]
    assert await board.names(where="heldBy!=PAUSED") == [subscription, "new", "z-new"]
    assert await board.names(where="deliveryState=NOT_SAMPLED") == ["new", "z-new"]
    await board.sample()
    assert all(entry.sample is not None for entry in (await board.page()).entries)


async def test_each_order_has_the_largest_first_or_last(board: Board, log: Log) -> None:
    names = [log.subscription.name.rpartition("/")[2], *"abcd"]
    for name in names[1:]:
        await board.add(name)
    await board.sample()
    columns = {
        "undeliveredMessages": "undelivered_messages",
        "undeliveredBytesEstimate": "undelivered_bytes",
        "outstandingMessages": "outstanding_messages",
        "blockedMessages": "blocked_messages",
        "deadLetters": "dead_letters",
        "incomingMessagesPerSecond": "incoming_rate",
        "outgoingMessagesPerSecond": "outgoing_rate",
    }
    ids = [row[0] for row in await log.rows("SELECT subscription_id FROM lag_samples ORDER BY 1")]
    expected = {"subscription": sorted(names, reverse=True), "oldestUndeliveredMessageAge": []}
    chosen = random.Random(1)
    ages = chosen.sample(range(len(ids)), len(ids))
    for id_, age in zip(ids, ages, strict=True):
        await log.execute(
            f"UPDATE lag_samples SET oldest_unacked_at = '{log.start - age * SECOND}' WHERE subscription_id = {id_}"
        )
    expected["oldestUndeliveredMessageAge"] = [name for _, name in sorted(zip(ages, names, strict=True))][::-1]
    for field, column in columns.items():
        values = chosen.sample(range(1, 100), len(ids))
        for id_, value in zip(ids, values, strict=True):
            await log.execute(f"UPDATE lag_samples SET {column} = {value} WHERE subscription_id = {id_}")
        expected[field] = [name for _, name in sorted(zip(values, names, strict=True))][::-1]
    assert set(expected) == set(ORDERS)
    await _write_orders(board, log)
    for field, by_field in expected.items():
        assert await board.names(order_by=f"{field} desc") == by_field, field
        assert await board.names(order_by=field) == by_field[::-1], field
        assert await board.names(order_by=f"{field} asc") == by_field[::-1], field
    assert await board.names() == expected["oldestUndeliveredMessageAge"]


async def test_a_fresh_page_is_in_the_same_order_as_samples_with_equal_figures(board: Board, log: Log) -> None:
    for name in "abcdef":
        await board.add(name)
    await board.sample()
    chosen = random.Random(2)
    for [id_] in await log.rows("SELECT subscription_id FROM lag_samples ORDER BY 1"):
        figures = {column: chosen.choice(("0", "1")) for column in COUNTS.values()}
        figures["incoming_rate"] = chosen.choice(("0", "1", "NULL"))
        figures["oldest_unacked_at"] = chosen.choice(("NULL", f"'{log.start}'", f"'{log.start + SECOND}'"))
        assigned = ", ".join(f"{column} = {value}" for column, value in figures.items())
        await log.execute(f"UPDATE lag_samples SET {assigned} WHERE subscription_id = {id_}")
    await _write_orders(board, log)
    entries = (await board.page()).entries
    for order_by in [f"{field} {direction}" for field in ORDERS for direction in ("asc", "desc")]:
        assert names_of(in_order(entries, parse_order(order_by))) == await board.names(order_by=order_by), order_by


async def _write_orders(board: Board, log: Log) -> None:
    """Write the orders from the samples as they are."""
    await log.execute("DELETE FROM lag_orders")
    await log.execute("UPDATE lag_samples SET sampled_at = '2100-01-01'")
    async with log.database.transaction() as connection:
        await write_orders(connection, after="", before=None, began_at=board.clock.moment)


@pytest.mark.parametrize("order_by", ["", "undeliveredMessages", "undeliveredMessages desc", "subscription desc"])
async def test_pages_go_on_in_the_order_in_which_they_began_whatever_is_sampled_meanwhile(
    board: Board, log: Log, order_by: str
) -> None:
    """Without a gap or a duplicate, although each sample reverses the order, and subscriptions come and go."""
    added = {name: await board.add(name) for name in (f"s{number:02}" for number in range(20))}
    await board.sample()
    before = await board.names(order_by=order_by)
    token, found, sampled = "", [], 0
    while True:
        page = await board.page(order_by=order_by, size=3, token=token)
        found += names_of(page.entries)
        token = page.next_page_token
        if not token:
            break
        sampled += 1
        await log.publish("a", now=board.clock.moment)
        even = f"subscription_id % 2 = {sampled % 2}"
        await log.execute(f"UPDATE cursors SET next_seq = {1 if sampled % 2 else sampled + 1} WHERE {even}")
        if sampled == 2:
            await board.delete(added["s07"])
        await board.add(f"later{sampled}")
        await board.sample()
    assert sampled > 5
    remaining = [name for name in found if not name.startswith("later")]
    assert remaining == [name for name in before if name != "s07" or name in found]
    assert len(set(found)) == len(found)


async def test_pages_of_what_is_not_sampled_go_on_once_it_is(board: Board, log: Log) -> None:
    for number in range(6):
        await board.add(f"s{number}")
    first = await board.page(size=4)
    await board.sample()
    second = await board.page(size=4, token=first.next_page_token)
    everything = sorted([log.subscription.name.rpartition("/")[2], *(f"s{number}" for number in range(6))])
    assert names_of(first.entries) + names_of(second.entries) == everything
    assert second.next_page_token == ""
    assert all(entry.sample is not None for entry in second.entries)


async def test_a_token_is_of_its_order_and_filter_and_ends_with_its_sample(board: Board, log: Log) -> None:
    for number in range(3):
        await board.add(f"s{number}")
    await board.sample()
    token = (await board.page(size=2)).next_page_token
    wrongs: list[dict[str, Any]] = [{"order_by": "undeliveredMessages"}, {"where": "paused=true"}]
    for wrong in wrongs:
        with pytest.raises(InvalidArgument, match="Invalid page token"):
            await board.page(size=2, token=token, **wrong)
    with pytest.raises(InvalidArgument, match="Invalid page token"):
        await board.page(size=2, token="nonsense")
    await log.publish("a")
    await board.sample()
    await _forget(board, log, timedelta(minutes=9))
    assert len((await board.page(size=2, token=token)).entries) == 2
    await _forget(board, log, timedelta(minutes=11))
    with pytest.raises(InvalidArgument, match="begin again with the first page"):
        await board.page(size=2, token=token)
    assert len((await board.page(size=2)).entries) == 2  # of the newest order


async def _forget(board: Board, log: Log, later: timedelta) -> None:
    from broker.features.lag_board.sample_rows import forget_old_samples

    async with log.database.connection() as connection, connection.transaction():
        await forget_old_samples(connection, now=board.clock.moment + later)


async def test_nothing_is_kept_of_subscriptions_and_projects_that_are_gone(board: Board, log: Log) -> None:
    gone = await board.add("only", project="projects/gone")
    await board.sample()
    assert await log.rows("SELECT DISTINCT project FROM lag_orders ORDER BY 1") == [
        ("projects/gone",),
        ("projects/p",),
    ]
    await board.delete(gone)
    await _forget(board, log, timedelta(0))
    assert await log.rows("SELECT DISTINCT project FROM lag_orders") == [("projects/p",)]
    [(count,)] = await log.rows("SELECT count(*) FROM lag_samples")
    assert count == 1


async def test_projects_have_boards_of_their_own(board: Board, log: Log) -> None:
    """Also those whose names begin alike."""
    for project in ("projects/a", "projects/a-b", "projects/a0"):
        for name in ("x", "y"):
            await board.add(name, project=project)
    await board.sample()
    for project in ("projects/a", "projects/a-b", "projects/a0"):
        found = await board.page(project=project)
        assert [entry.subscription.name for entry in found.entries] == [
            f"{project}/subscriptions/x",
            f"{project}/subscriptions/y",
        ]
    with pytest.raises(InvalidArgument):
        await board.page(project="projects/no spaces")
    assert (await board.page(project="projects/empty")).entries == []


async def test_filters_find_subscriptions_by_what_they_are_and_how_they_stand(board: Board, log: Log) -> None:
    own = log.subscription.name.rpartition("/")[2]
    await board.add("shop-orders", labels={"team": "shop", "tier": "1"})
    await board.add("shop-mail", push_config=PushConfig(endpoint="https://example.com/"), labels={"team": "mail"})
    await board.add("done")
    await log.publish("a", "bb")
    await _claimed_up_to(log, "done", 3)
    await log.execute(
        "INSERT INTO push_states (subscription_id, breaker, changed_at, consecutive_failures, window_size,"
        " outstanding_requests, paused_reason) SELECT subscription_id, 'open', now(), 3, 1, 0, 'Why.'"
        " FROM subscriptions WHERE name LIKE '%shop-mail'"
    )
    await board.sample(5 * MINUTE)
    for where, expected in {
        "name=done": ["done"],
        "name=shop-*": ["shop-mail", "shop-orders"],
        "name:shop": ["shop-mail", "shop-orders"],
        "name!=shop-*": ["done", own],
        f'name="{log.subscription.name}"': [own],
        f"topic={log.topic.name}": ["done", "shop-mail", "shop-orders", own],
        "topic=other": [],
        "heldBy=NO_CONSUMERS": ["shop-orders", own],
        "heldBy!=NO_CONSUMERS": ["done", "shop-mail"],
        "deliveryState=CAUGHT_UP": ["done"],
        "paused=true": ["shop-mail"],
        "paused!=true AND breaker=open": [],
        "breaker=open": ["shop-mail"],
        'label="team=shop"': ["shop-orders"],
        'label!="team=shop"': ["done", "shop-mail", own],
        "label:team": ["shop-mail", "shop-orders"],
        'label="team=*"': ["shop-mail", "shop-orders"],
        "label=tier": ["shop-orders"],
        "undeliveredMessages=2": ["shop-mail", "shop-orders", own],
        "undeliveredMessages<2": ["done"],
        "undeliveredBytesEstimate>2 heldBy=PAUSED": ["shop-mail"],
        "oldestUndeliveredMessageAge>=300s": ["shop-mail", "shop-orders", own],
        "oldestUndeliveredMessageAge>300.5s": [],
        "deadLetters>0": [],
    }.items():
        assert sorted(await board.names(where=where)) == sorted(expected), where
        assert sorted(await board.names(where=where, order_by="subscription")) == sorted(expected), where


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("size=1", "size cannot be compared"),
        ("heldBy=NOBODY", "heldBy is one of"),
        ("heldBy=CAUGHT_UP", "heldBy is one of"),
        ("paused=1", "paused is one of true, false"),
        ("breaker=broken", "breaker is one of"),
        ("undeliveredMessages=many", "with a number"),
        ("undeliveredMessages=nan", "with a number"),
        ("undeliveredMessages:1", "cannot be compared by :"),
        ("name>a", "cannot be compared by >"),
        ("oldestUndeliveredMessageAge>300", "oldestUndeliveredMessageAge"),
        ("paused", "is not valid"),
    ],
)
async def test_a_filter_that_cannot_be_is_refused_with_the_reason(board: Board, where: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        await board.page(where=where)


@pytest.mark.parametrize("order_by", ["size", "undeliveredMessages down", "undeliveredMessages, deadLetters"])
async def test_an_order_that_cannot_be_is_refused_with_those_that_can(board: Board, order_by: str) -> None:
    with pytest.raises(InvalidArgument, match="orderBy is one of subscription, "):
        await board.page(order_by=order_by)


async def test_a_fresh_page_has_the_figures_of_now_in_their_order(board: Board, log: Log) -> None:
    await board.add("a")
    await board.sample()
    await log.publish("one")
    await _claimed_up_to(log, "a", 2)
    own = log.subscription.name.rpartition("/")[2]
    sampled = await board.page(order_by="undeliveredMessages desc")
    assert [entry.sample and entry.sample.undelivered_messages for entry in sampled.entries] == [0, 0]
    board.clock.moment += SECOND
    fresh = await board.page(order_by="undeliveredMessages desc", fresh=True)
    assert names_of(fresh.entries) == [own, "a"]
    assert [entry.sample and entry.sample.undelivered_messages for entry in fresh.entries] == [1, 0]
    assert fresh.sampled_at == board.clock.moment
    assert await board.names(order_by="undeliveredMessages", fresh=True) == ["a", own]
    [entry] = (await board.page(where="name=a", fresh=True)).entries
    assert (entry.sample and entry.sample.state) == LagState.CAUGHT_UP


async def test_dead_letters_are_counted_until_they_are_resolved(board: Board, log: Log) -> None:
    policy = DeadLetterPolicy(dead_letter_topic=log.topic.name, max_delivery_attempts=5)
    fragile = await board.add("fragile", dead_letter_policy=policy)
    await board.sample()
    await board.sample()
    await log.execute(
        "INSERT INTO dead_letters SELECT shard_id, now(), n, shard_id, n, now(), 'projects/p/topics/t', "
        f"{fragile.subscription_id}, '{fragile.name}', 5, 'attempts' FROM shards, generate_series(1, 3) AS n"
    )

    async def counted() -> list[object]:
        await board.sample()
        [entry] = (await board.page(where="name=fragile")).entries
        return [entry.sample and entry.sample.dead_letters, await board.names(where="deadLetters>=2")]

    assert await counted() == [3, ["fragile"]]
    await log.execute("UPDATE dead_letters SET resolution = 'discarded' WHERE seq = 1")
    assert await counted() == [2, ["fragile"]]
    assert (await board.names(order_by="deadLetters desc"))[0] == "fragile"
    await log.execute("DELETE FROM dead_letters")
    assert await counted() == [0, []]


async def test_a_detached_subscription_is_said_to_be(board: Board, log: Log) -> None:
    from broker.core.catalog.subscription_rows import detach_subscription

    subscription = await board.add("detached")
    await board.sample()
    await board.sample()
    async with log.database.transaction() as connection:
        await detach_subscription(connection, subscription_id=subscription.subscription_id, now=board.clock.moment)
    await board.sample()
    assert await board.names(where="deliveryState=DETACHED") == ["detached"]
    await board.sample()
    await board.sample()
    written = await log.rows("SELECT max(sampled_at) FROM lag_samples")
    await board.sample()
    assert await log.rows("SELECT max(sampled_at) FROM lag_samples") == written  # it is at rest


async def test_one_process_samples_at_a_time_and_another_goes_on_where_it_ended(board: Board, log: Log) -> None:
    first, second = board.sampler(), board.sampler()
    assert await first.run_once()
    assert not await second.run_once()  # it is not time to
    board.clock.moment += INTERVAL
    async with log.database.transaction() as connection:
        from broker.features.lag_board.sample_rows import take_pass

        taken = await take_pass(connection, now=board.clock.moment)
        assert taken is not None
        assert not await second.run_once()  # another one is at it
    began_at = board.clock.moment
    await log.execute(
        f"UPDATE lag_passes SET began_at = '{began_at - 5 * SECOND}', after = 'projects/p/subscriptions/zzz'"
    )
    assert await second.run_once()
    assert (await board.page()).sampled_at == began_at - 5 * SECOND


async def test_it_begins_anew_after_a_crash_of_the_server_which_empties_its_tables(board: Board, log: Log) -> None:
    await log.publish("a")
    await board.sample()
    await log.execute("TRUNCATE lag_samples, lag_orders, lag_passes")
    found = await board.page()
    assert (found.sampled_at, [entry.sample for entry in found.entries]) == (None, [None])
    await board.sample()
    assert (await board.only()).sample is not None


_NO_RETENTION = "UPDATE subscriptions SET message_retention = '2000000 days' WHERE name LIKE '%/bad%'"  # no date is
_NO_SETTINGS = """UPDATE subscriptions SET settings = '{"pushConfig": 5}' WHERE name LIKE '%/bad%'"""
_REPAIR = "UPDATE subscriptions SET message_retention = '7 days', settings = '{}' WHERE name LIKE '%/bad%'"


@pytest.mark.parametrize("fault", [_NO_RETENTION, _NO_SETTINGS])
async def test_a_subscription_whose_lag_cannot_be_read_keeps_its_sample_and_the_others_are_sampled(
    board: Board, log: Log, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    caplog.set_level(logging.INFO, "broker.state")
    names = ["bad1", *(f"s{number}" for number in range(7)), "bad2"]
    for name in names:
        await board.add(name)
    await log.publish("one")
    sampler = LagSampler(
        log.database, board.clock, interval_seconds=INTERVAL.total_seconds(), states=StateChanges()
    )

    async def sample() -> dict[str, int]:
        """A pass; how many messages each subscription had in its last sample."""
        board.clock.moment += INTERVAL
        assert await sampler.run_once()
        async with log.database.connection() as connection:
            rows = await connection.execute(
                "SELECT s.name, l.undelivered_messages FROM lag_samples AS l JOIN subscriptions AS s"
                " USING (subscription_id)"
            )
            return {name.rpartition("/")[2]: count for name, count in await rows.fetchall()}

    def lines() -> list[str]:
        return sorted(record.getMessage().partition(",")[0] for record in caplog.records)

    sampled = await sample()
    assert {name: sampled[name] for name in names} == dict.fromkeys(names, 1)
    await log.execute(fault)
    for count in (2, 3):
        await log.publish("another")
        sampled = await sample()
        assert {name: sampled[name] for name in names} == {name: 1 if "bad" in name else count for name in names}
        expected = [f"the lag of {name} cannot be read" for name in ("bad1", "bad2")]
        assert lines() == expected  # once, and not with each pass
    caplog.clear()
    await log.execute("DELETE FROM subscriptions WHERE name LIKE '%/bad2'")
    await log.execute(_REPAIR)
    assert (await sample())["bad1"] == 3
    assert lines() == ["the lag of bad1 is sampled again"]
    assert not sampler._unreadable


async def test_a_pass_that_does_not_reach_the_database_blames_no_subscription(
    board: Board, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = Database("postgresql://nobody@127.0.0.1:9/none")
    sampler = LagSampler(nowhere, board.clock, interval_seconds=INTERVAL.total_seconds(), states=StateChanges())
    sample_pass = SamplePass(board.clock.moment, "", None)
    window = Window("", [log.subscription.subscription_id], {}, is_last=True)
    with pytest.raises(Unavailable):
        await sampler._sample_readable(sample_pass, window, window.due_ids)
    await nowhere.close()
    assert not sampler._unreadable
    assert not caplog.records


async def test_an_endpoint_that_answers_late_is_warned_of_with_its_deadline_for_an_hour(
    board: Board, log: Log
) -> None:
    pushed = await board.add("pushed", push_config=PushConfig(endpoint="https://example.com/"))
    extended = await board.add(
        "extended", push_config=PushConfig(endpoint="https://example.com/"), ack_deadline_seconds=60
    )
    await board.sample()
    late = LateAnswers(
        since=log.start, last_at=log.start + SECOND, requests=10, latency=timedelta(seconds=25, milliseconds=40)
    )
    for of in (pushed, extended):
        state = PushState(subscription_id=of.subscription_id, changed_at=log.start, late_answers=late)
        await _write(log, state)
    assert await _warnings(board, "extended") == []
    assert await _warnings(board, "pushed") == [
        "The endpoint answers too late: 10 requests were accepted after the ack deadline, which is 10s, since "
        f"{format_timestamp(log.start)}, the last one at {format_timestamp(log.start + SECOND)} after 25s. "
        "Their messages are pushed more than once. Set an ack deadline above 25s, or answer sooner."
    ]
    board.clock.moment = log.start + timedelta(hours=1) + SECOND
    assert await _warnings(board, "pushed") == []


async def test_the_next_attempt_of_a_failing_endpoint_is_never_over(board: Board, log: Log) -> None:
    pushed = await board.add("pushed", push_config=PushConfig(endpoint="https://example.com/"))
    await log.publish("a")
    run = FailureRun(since=log.start, requests=15, status=503, reason="Service Unavailable", is_reported=True)
    retry_at = log.start + 30 * SECOND
    state = PushState(subscription_id=pushed.subscription_id, changed_at=log.start, failures=run, retry_at=retry_at)
    await _write(log, state)
    await board.sample(SECOND)
    answer = lag_json(await _entry(board, "pushed"))
    assert f"the next attempt is at {format_timestamp(retry_at)}" in answer["verdict"]
    assert answer["push"]["retryTime"] == answer["endpointFailure"]["retryTime"] == format_timestamp(retry_at)
    board.clock.moment = retry_at + SECOND
    later = lag_json(await _entry(board, "pushed"))
    assert "next attempt" not in later["verdict"]
    assert "retryTime" not in later["push"] | later["endpointFailure"]


async def _write(log: Log, state: PushState) -> None:
    async with log.database.transaction() as connection:
        assert await push_states.write_push_states(connection, states=[state]) == 1


async def _entry(board: Board, name: str) -> LagEntry:
    [entry] = (await board.page(where=f"name={name}")).entries
    return entry


async def _warnings(board: Board, name: str) -> list[str]:
    return list((await _entry(board, name)).warnings)
