"""What a claim for push hands out to many subscriptions at once (A7, A8, C1)."""

from datetime import timedelta
from typing import Any

import pytest

from broker.core.claiming.transaction import allocate, fresh
from broker.core.claiming.transaction import claim as claims
from broker.core.claiming.transaction.request import MAX_TARGETS, ClaimRequest, Gone, Locked, Quiet
from broker.core.filtering.jsonpath import to_jsonpath
from broker.core.filtering.parser import parse_filter
from tests.fixtures.log import ACK_DEADLINE, Log, texts
from tests.fixtures.push_log import PushLog, contents
from tests.interleavings.steps import open_transaction
from tests.query_plans.recorder import Recorder

PROD = to_jsonpath(parse_filter('attributes.env = "prod"'))
TEST = to_jsonpath(parse_filter('attributes.env = "test"'))


async def test_subscriptions_at_one_place_get_the_same_messages_each_under_an_attempt_of_its_own(
    push_log: PushLog,
) -> None:
    await push_log.publish("a", "b")
    claimed = await push_log.claim()
    assert contents(claimed) == [["a", "b"]] * 3
    assert len({one.deliveries[0].attempt_id for one in claimed}) == 3
    assert await push_log.log.attempts() == [("delivering", 1, "11")] * 3
    for number, one in enumerate(claimed):
        assert await push_log.acknowledge(number, one.deliveries[0]) == set()
    assert await push_log.log.attempts() == []
    assert contents(await push_log.claim()) == [[]] * 3


async def test_subscriptions_at_different_places_each_get_what_is_before_them(push_log: PushLog) -> None:
    await push_log.publish("a", "b", "c")
    await push_log.claim(0, max_messages=1)
    await push_log.claim(1)
    await push_log.publish("d")
    assert contents(await push_log.claim()) == [["b", "c", "d"], ["d"], ["a", "b", "c", "d"]]
    assert await push_log.next_seqs() == [5, 5, 5]


async def test_each_subscription_has_a_filter_and_the_cursors_pass_what_does_not_match(push_log: PushLog) -> None:
    await push_log.publish("1", "2", env="prod")
    await push_log.publish("3", env="test")
    targets = [push_log.target(number, filter_path=path) for number, path in enumerate((PROD, TEST, None))]
    claimed = await push_log.claim_for(*targets)
    assert contents(claimed) == [["1", "2"], ["3"], ["1", "2", "3"]]
    assert await push_log.next_seqs() == [4, 4, 4]
    assert not any(one.more for one in claimed)


async def test_windows_differ_where_the_place_is_the_same(push_log: PushLog) -> None:
    await push_log.publish(*"abcd")
    targets = [push_log.target(number, max_messages=window) for number, window in enumerate((1, 4, 3))]
    claimed = await push_log.claim_for(*targets)
    assert contents(claimed) == [["a"], [*"abcd"], [*"abc"]]
    assert [one.more for one in claimed] == [True, False, True]
    assert contents(await push_log.claim()) == [[*"bcd"], [], ["d"]]


async def test_a_byte_budget_ends_a_share_and_a_message_larger_than_it_goes_alone(push_log: PushLog) -> None:
    await push_log.publish("x" * 5000, "small", "y" * 1000, "z" * 1000)
    budgets = (1000, 7000, 100_000)
    targets = [push_log.target(number, max_bytes=budget) for number, budget in enumerate(budgets)]
    claimed = await push_log.claim_for(*targets)
    assert [[len(text) for text in one] for one in contents(claimed)] == [
        [5000],
        [5000, 5, 1000],
        [5000, 5, 1000, 1000],
    ]
    assert [one.more for one in claimed] == [True, True, False]


async def test_bodies_of_one_claim_are_bounded_and_what_does_not_fit_stays(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocate, "MAX_BYTES", 5000)
    await push_log.publish("x" * 3000)
    await push_log.claim(1)
    await push_log.publish("y" * 3000)
    claimed = await push_log.claim(0, 2, 1, max_bytes=5000)
    # The same message goes to two and counts once; another has no room beside it.
    assert [[text[0] for text in one] for one in contents(claimed)] == [["x"], ["x"], []]
    assert [one.more for one in claimed] == [True, True, True]
    rest = await push_log.claim(1, 0, 2, max_bytes=5000)
    assert [[text[0] for text in one] for one in contents(rest)] == [["y"]] * 3


async def test_a_message_larger_than_all_bodies_of_a_claim_goes_alone(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocate, "MAX_BYTES", 1000)
    await push_log.publish("x" * 3000, "y")
    assert [len(text) for text in await push_log.texts(max_bytes=1000)] == [3000]
    assert await push_log.texts(max_bytes=1000) == ["y"]


async def test_messages_past_the_retention_are_not_delivered(push_log: PushLog) -> None:
    await push_log.publish("old")
    later = push_log.start + timedelta(minutes=9)
    await push_log.publish("new", now=later)
    since = later - timedelta(minutes=5)
    targets = [push_log.target(0, retained_since=since), push_log.target(1)]
    assert contents(await push_log.claim_for(*targets, now=later)) == [["new"], ["old", "new"]]
    assert (await push_log.next_seqs())[:2] == [3, 3]


async def test_many_places_are_looked_at_in_small_shares(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh, "MAX_SCANNED", 6)
    await push_log.publish("a")
    await push_log.claim(0)
    await push_log.publish("b")
    await push_log.claim(1)
    await push_log.publish("c", "d", "e", "f")
    claimed = await push_log.claim()
    assert contents(claimed) == [["b", "c"], ["c", "d"], ["a", "b"]]
    assert all(one.more for one in claimed)
    assert contents(await push_log.claim(2)) == [["c", "d", "e", "f"]]


async def test_a_long_stretch_without_a_match_is_passed_in_bounded_steps(
    push_log: PushLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fresh, "MAX_SCANNED", 10)
    await push_log.publish(*["no"] * 25, env="test")
    await push_log.publish("yes", env="prod")
    replica_reads = 0
    while not (claimed := (await push_log.claim(0, filter_path=PROD))[0]).deliveries:
        assert claimed.more
        replica_reads += 1
    assert (texts(claimed.deliveries), replica_reads, claimed.more) == (["yes"], 2, False)


async def test_matches_far_apart_are_attempts_of_their_own(push_log: PushLog) -> None:
    for _ in range(2):
        await push_log.publish("yes", env="prod")
        await push_log.publish(*["no"] * 50, env="test")
    [claimed] = await push_log.claim(0, filter_path=PROD)
    assert [len(delivery.messages) for delivery in claimed.deliveries] == [1, 1]


async def test_an_attempt_whose_messages_are_dropped_before_they_are_read_is_left_out(push_log: PushLog) -> None:
    await push_log.publish("a", env="prod")
    await push_log.publish("b", env="prod")
    async with push_log.log.database.hot() as connection:
        dropping = Dropping(connection, push_log.log)
        [claimed] = await push_log.claim(0, connection=dropping, filter_path=PROD)  # type: ignore[arg-type]
    assert not claimed.deliveries
    assert await push_log.texts(now=push_log.start + ACK_DEADLINE) == ["b"]
    assert await push_log.log.attempts() == [("delivering", 2, "1")]


class Dropping:
    """A connection before whose writes a message goes, as if its partition were dropped."""

    def __init__(self, connection: Any, log: Log) -> None:
        self._connection, self._log = connection, log

    async def run(self, *bound: Any) -> Any:
        if any(b"INSERT INTO delivery_attempts" in statement.text for statement, _ in bound):
            await self._log.execute("DELETE FROM message_batches WHERE last_seq = 1")
        return await self._connection.run(*bound)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


async def test_a_subscription_that_is_claimed_for_by_somebody_else_is_locked_and_one_without_a_cursor_is_gone(
    push_log: PushLog,
) -> None:
    await push_log.publish("a")
    push_log.ids.append(999_999)
    async with open_transaction(push_log.log.database) as session:
        lock = claims._LOCK_FREE_CURSORS
        await session.run((lock, {"shard_id": push_log.log.shard_id, "subscription_ids": [push_log.ids[1]]}))
        claimed = await push_log.claim()
    assert [one.rest for one in claimed] == [Quiet(), Locked(), Quiet(), Gone()]
    assert contents(claimed) == [["a"], [], ["a"], []]
    assert await push_log.texts(1) == ["a"]


async def test_a_claim_for_nobody_is_empty_and_one_for_too_many_is_refused(push_log: PushLog) -> None:
    assert await push_log.claim_for() == []
    targets = [push_log.target(0)] * (MAX_TARGETS + 1)
    with pytest.raises(ValueError, match="1001"):
        ClaimRequest(shard_id=1, now=push_log.start, targets=targets)


async def test_a_claim_that_finds_nothing_writes_nothing(push_log: PushLog) -> None:
    before = await push_log.log.rows("SELECT xmin, * FROM cursors ORDER BY subscription_id")
    assert contents(await push_log.claim()) == [[]] * 3
    assert await push_log.log.rows("SELECT xmin, * FROM cursors ORDER BY subscription_id") == before


@pytest.mark.parametrize("subscriptions", [1, 40])
async def test_the_number_of_statements_does_not_grow_with_the_subscriptions(
    push_log: PushLog, subscriptions: int
) -> None:
    await push_log.subscribe(subscriptions)
    await push_log.publish("a", "b", env="prod")
    counted = []
    async with push_log.log.database.hot() as connection:
        recorder: Any = Recorder(connection)
        await push_log.claim(connection=recorder)
        counted.append((recorder.round_trips, recorder.statements))
        await push_log.publish("c")
        await push_log.claim(connection=recorder, now=push_log.start + ACK_DEADLINE)
        counted.append((recorder.round_trips, recorder.statements))
    assert counted == [(3, 8), (7, 19)]
