"""How a claim is shared out among streams and pulls that wait: evenly, and keys to whom they belong (A6, A7)."""

import asyncio
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from broker.core.claiming.transaction.allocation import allocate_in_order, even_parts
from broker.core.pulling.key_owners import MAX_KEYS, KeyOwners
from broker.core.pulling.pull_queue import (
    MAX_CLAIM_MESSAGES,
    MAX_CLAIM_PULLS,
    Line,
    PullTerms,
    WaitingPull,
    requests_of,
    take,
)
from broker.model.delivery import Delivery, DeliveryRequest, StoredMessage
from broker.model.message_range import MessageRange

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLENTY = 1_000_000


def stream(messages: int, size: int = PLENTY) -> DeliveryRequest:
    return DeliveryRequest(max_messages=messages, max_bytes=size, evenly=True)


def log(*keys: str | None, size: int = 1) -> list[MessageRange]:
    return [MessageRange(seq, 1, NOW, seq, size, key) for seq, key in enumerate(keys)]


def counts(requests: list[DeliveryRequest], available: int) -> list[int]:
    return [request.max_messages for request in even_parts(requests, available, among=available)]


def test_streams_that_wait_together_get_equal_parts_of_what_there_is() -> None:
    assert counts([stream(1000)] * 4, 100) == [25] * 4
    assert counts([stream(1000)] * 3, 100) == [34] * 3
    assert counts([stream(1000), stream(3)], 100) == [50, 3]
    assert counts([stream(1000)] * 5, 2) == [1] * 5


def test_a_pull_takes_what_it_asks_for() -> None:
    pull = DeliveryRequest(max_messages=1000, max_bytes=PLENTY)
    assert counts([pull, stream(1000)], 100) == [1000, 50]


def test_the_part_of_a_single_key_is_all_of_it() -> None:
    [first, _] = even_parts([stream(1000), stream(1000)], 500, among=1)
    assert first.max_messages == 500


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(0, 5000))
def test_even_parts_leave_nothing_behind_that_was_asked_for(asked: list[int], available: int) -> None:
    parts = counts([stream(count) for count in asked], available)
    assert sum(parts) >= min(available, sum(min(count, max(parts)) for count in asked))
    assert max(parts) - min(parts) <= max(asked)


def waiting(*requests: DeliveryRequest, ack_deadlines: tuple[int, ...] = ()) -> Line:
    loop = asyncio.new_event_loop()
    seconds = ack_deadlines or (10,) * len(requests)
    try:
        return Line(
            WaitingPull(
                request, True, loop.create_future(), loop.create_future(), PullTerms(timedelta(seconds=number))
            )
            for request, number in zip(requests, seconds, strict=True)
        )
    finally:
        loop.close()


def test_one_claim_serves_all_streams_that_wait_and_four_large_pulls() -> None:
    streams = waiting(*[stream(1000)] * 200)
    taken = take(streams)
    assert (len(taken), len(streams)) == (200, 0)
    assert sum(request.max_messages for request in requests_of(taken)) == MAX_CLAIM_MESSAGES
    pulls = waiting(*[DeliveryRequest(max_messages=1000, max_bytes=PLENTY)] * 6)
    assert len(take(pulls)) == 4


def test_of_thousands_of_pulls_a_claim_serves_some_in_their_order() -> None:
    """All of them were looked at again and again, by each claim for several times as long as a small call takes."""
    pulls = waiting(*[DeliveryRequest(max_messages=1, max_bytes=PLENTY)] * 1_000)
    first = list(pulls)
    assert take(pulls) == first[:MAX_CLAIM_PULLS]
    assert list(pulls) == first[MAX_CLAIM_PULLS:]


def test_one_claim_serves_one_ack_deadline() -> None:
    pulls = waiting(*[stream(10)] * 4, ack_deadlines=(10, 10, 60, 10))
    assert [len(take(pulls)) for _ in range(3)] == [2, 1, 1]


def test_pulls_leave_from_anywhere_and_the_others_keep_their_order() -> None:
    line = waiting(*[stream(10)] * 6)
    a, b, c, d, e, f = line
    assert line.leave(c)
    assert not line.leave(c)
    assert (line.first, line.popleft()) == (a, a)
    line.append(c)
    line.put_back([a, b])  # b stood there already
    assert list(line) == [a, b, d, e, f, c]
    assert list(reversed(line)) == [c, f, e, d, b, a]
    assert len(line) == 6


def keys_of(shares: list[list[MessageRange]]) -> list[list[str | None]]:
    return [[message.ordering_key for message in share] for share in shares]


def test_a_key_goes_to_the_demand_it_belongs_to() -> None:
    owners = {"a": 1, "b": 0}.get
    shares, considered = allocate_in_order([stream(10)] * 2, log("a", "b", "a", "c", None), 1000, owners)
    assert keys_of(shares) == [["b", "c", None], ["a", "a"]]
    assert considered == 5


def test_a_key_goes_elsewhere_while_its_owner_has_no_capacity() -> None:
    shares, _ = allocate_in_order([stream(10), stream(1)], log("a", "b", "c"), 1000, lambda key: 1)
    assert keys_of(shares) == [["b", "c"], ["a"]]


def test_nothing_goes_out_behind_a_message_of_its_key_that_waits() -> None:
    small, large, last = log("a", "a", "a")
    large = large._replace(size=PLENTY)
    shares, considered = allocate_in_order([stream(10, 5_000)], [small, large, last], 1000)
    assert [[message.first_seq for message in share] for share in shares] == [[0]]
    assert considered == 3  # they wait for their key from now on


def test_one_message_of_a_key_at_a_time_if_so_asked() -> None:
    shares, considered = allocate_in_order([stream(10)] * 2, log("a", "a", "b", "a"), 1)
    assert keys_of(shares) == [["a", "b"], []]
    assert considered == 4


keys = st.lists(st.sampled_from([None, "a", "b", "c", "d"]), max_size=40)


@given(keys, st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 5), st.data())
def test_a_key_is_with_one_demand_in_order_and_without_gaps(
    fresh: list[str | None], capacities: list[int], max_run: int, data: st.DataObject
) -> None:
    places = st.none() | st.integers(0, len(capacities) - 1)
    owners = {key: data.draw(places) for key in "abcd"}
    messages = log(*fresh)
    shares, considered = allocate_in_order([stream(n) for n in capacities], messages, max_run, owners.get)
    assert all(len(share) <= capacity for share, capacity in zip(shares, capacities, strict=True))
    given_out = {message.first_seq for share in shares for message in share}
    assert all(seq in given_out for seq, key in enumerate(fresh[:considered]) if key is None)
    for key in "abcd":
        holders = [n for n, share in enumerate(shares) if any(m.ordering_key == key for m in share)]
        assert len(holders) <= 1
        of_key = [seq for seq, other in enumerate(fresh[:considered]) if other == key]
        out = [m.first_seq for n in holders for m in shares[n] if m.ordering_key == key]
        assert out == of_key[: len(out)]
        assert len(out) <= max_run
        assert out or not of_key  # or nobody would look for them


def run_of(key: str) -> Delivery:
    return Delivery(1, 1, 1, [StoredMessage(1, NOW, key, "{}", b"x")], ordered=True)


def test_who_had_a_key_last_owns_it_while_others_wait_as_well() -> None:
    owners = KeyOwners()
    owners.note(7, "one", [run_of("a")])
    preferred = owners.preferred(7, ["two", "one", None])
    assert (preferred("a"), preferred("b"), preferred("c")) == (1, None, None)
    owners.note(7, "two", [run_of("a")])
    assert owners.preferred(7, ["two", "one"])("a") == 0
    assert owners.preferred(7, ["three", "one"])("a") is None
    assert owners.preferred(8, ["two", "one"])("a") is None


def test_owners_are_bounded() -> None:
    owners = KeyOwners()
    for number in range(MAX_KEYS + 1):
        owners.note(7, "one", [run_of(str(number))])
    preferred = owners.preferred(7, ["one", "two"])
    assert (preferred("0"), preferred("1")) == (None, 0)
