"""Messages that are past their time are not handed out, and are counted once (J3)."""

from datetime import timedelta

import pytest

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.core.claiming.transaction.request import Claimed, More, Quiet
from broker.core.filtering.jsonpath import filter_paths
from broker.core.filtering.parser import parse_filter
from broker.core.log.messages import append_messages, encode_messages, encode_with_gaps
from broker.model.message import NewMessage
from tests.fixtures.log import ACK_DEADLINE, RETENTION, SECOND, Log, texts

A_FILTER = filter_paths(parse_filter('attributes.kind = "a"')).filter_path


async def expired_events(log: Log) -> list[tuple[int, str]]:
    return await log.rows(  # type: ignore[return-value]
        "SELECT attempt, seqs::text FROM delivery_journal WHERE event = 'EXPIRED' ORDER BY number"
    )


async def ack_in_order(log: Log, claimed: Claimed) -> None:
    acks = {log.name(each): set(range(len(each.messages))) for each in claimed.deliveries[0]}
    async with log.session() as session:
        await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=(), now=log.start)


async def test_a_message_is_delivered_before_its_time_is_over_and_not_from_then_on(log: Log) -> None:
    await log.publish("a", ttl=5 * SECOND)
    just_before = log.start + 5 * SECOND - timedelta(microseconds=1)
    first = await log.pull(now=just_before)
    assert texts(first) == ["a"]
    await log.nack(first[0], now=just_before)
    claimed = await log.claim(now=log.start + 5 * SECOND)
    assert not claimed.deliveries[0]
    assert claimed.rest == Quiet()
    assert claimed.past == 1
    assert await log.attempts() == []


async def test_fresh_messages_past_their_time_are_passed_and_the_others_go_out(log: Log) -> None:
    await log.publish("a", "b", ttl=SECOND)
    await log.publish("c")
    await log.publish("d", ttl=9 * SECOND)
    claimed = await log.claim(now=log.start + SECOND)
    assert texts(claimed.deliveries[0]) == ["c", "d"]
    assert claimed.past == 2
    assert await expired_events(log) == [(0, "{[1,3)}")]
    assert (await log.claim(now=log.start + SECOND)).past == 0


async def test_each_message_of_a_request_has_its_own_time(log: Log) -> None:
    messages = [NewMessage(data=b"%d" % n) for n in range(5)]
    ttls = [SECOND, SECOND, None, 3 * SECOND, SECOND]
    batch = encode_messages(messages, (), ttls)
    async with log.session() as session:
        await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)
    assert await log.pull_texts(now=log.start + SECOND) == ["2", "3"]


async def test_times_stay_with_their_messages_where_some_are_not_stored(log: Log) -> None:
    messages = [NewMessage(data=b"a"), None, NewMessage(data=b"b"), NewMessage(data=b"c")]
    batch = encode_with_gaps(messages, (), [SECOND, None, None, SECOND])
    async with log.session() as session:
        await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)
    assert await log.pull_texts(now=log.start + SECOND) == ["b"]


async def test_requests_that_are_stored_together_keep_their_times(log: Log) -> None:
    requests = [
        encode_messages([NewMessage(data=text)], (), None if ttl is None else [ttl])
        for text, ttl in ((b"a", None), (b"b", SECOND), (b"c", SECOND), (b"d", 2 * SECOND), (b"e", None))
    ]
    async with log.session() as session:
        await append_messages(session, shard_id=log.shard_id, requests=requests, now=log.start)
    assert await log.rows("SELECT count(*) FROM message_batches") == [(4,)]
    assert await log.pull_texts(now=log.start + SECOND) == ["a", "d", "e"]


async def test_who_asks_for_one_message_gets_it_behind_thousands_that_are_past(log: Log) -> None:
    for _ in range(20):
        await log.publish(*["x"] * 100, ttl=SECOND)
    await log.publish("fresh", *["more"] * 5)
    claimed = await log.claim(1, now=log.start + SECOND)
    assert texts(claimed.deliveries[0]) == ["fresh"]
    assert claimed.past == 2_000
    assert claimed.rest == More()
    assert await log.pull_texts(now=log.start + SECOND) == ["more"] * 5


@pytest.mark.parametrize("ordered", [False, True])
async def test_what_a_filter_leaves_out_is_not_counted(log: Log, ordered: bool) -> None:
    kinds = ["a", "b"] * 3
    messages = [NewMessage(data=b"%d" % n, attributes={"kind": kind}) for n, kind in enumerate(kinds)]
    async with log.session() as session:
        batch = encode_messages(messages, (), [SECOND] * 4 + [None] * 2)
        await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)
    claimed = await log.claim(1, now=log.start + SECOND, filter_path=A_FILTER, ordered=ordered)
    assert texts(claimed.deliveries[0]) == ["4"]
    assert claimed.past == 2


async def test_a_message_that_is_past_its_time_when_it_comes_back_is_settled(log: Log) -> None:
    await log.publish("a", ttl=ACK_DEADLINE)
    await log.publish("b")
    [delivery] = await log.pull()
    claimed = await log.claim(now=log.start + ACK_DEADLINE)
    assert texts(claimed.deliveries[0]) == ["b"]
    assert (claimed.past, claimed.deliveries[0][0].attempt_number) == (1, 2)
    assert await expired_events(log) == [(1, "{[1,2)}")]
    assert await log.acknowledge(delivery) == {0, 1}


async def test_who_asks_for_one_redelivery_gets_it_behind_many_that_are_past(log: Log) -> None:
    await log.publish(*["x"] * 50, ttl=SECOND)
    await log.publish("again")
    await log.pull()
    claimed = await log.claim(1, now=log.start + ACK_DEADLINE)
    assert (texts(claimed.deliveries[0]), claimed.past) == (["again"], 50)


async def test_a_message_that_is_out_can_be_acked_after_its_time(log: Log) -> None:
    await log.publish("a", ttl=SECOND)
    [delivery] = await log.pull()
    assert await log.acknowledge(delivery) == set()
    assert (await log.claim(now=log.start + ACK_DEADLINE)).past == 0


# --- ordering keys -----------------------------------------------------------------------------------------------


async def test_a_message_past_its_time_is_not_in_the_way_of_its_key(log: Log) -> None:
    await log.publish("a", "b", key="k", ttl=SECOND)
    await log.publish("c", key="k")
    claimed = await log.claim(now=log.start + SECOND, ordered=True)
    assert (texts(claimed.deliveries[0]), claimed.past) == (["c"], 2)


async def test_those_between_what_goes_out_of_a_key_are_counted_once(log: Log) -> None:
    for text, ttl in (("a", None), ("b", SECOND), ("c", None), ("d", SECOND), ("e", SECOND)):
        await log.publish(text, key="k", ttl=ttl)
    now = log.start + SECOND
    first = await log.claim(now=now, ordered=True)
    assert (texts(first.deliveries[0]), first.past) == (["a", "c"], 1)
    await ack_in_order(log, first)
    second = await log.claim(now=now, ordered=True)
    assert (texts(second.deliveries[0]), second.past) == ([], 2)
    await log.publish("f", key="k")
    third = await log.claim(now=now, ordered=True)
    assert (texts(third.deliveries[0]), third.past) == (["f"], 0)
    assert await expired_events(log) == [(0, "{[2,3)}"), (0, "{[4,6)}")]


async def test_what_waits_behind_a_key_and_is_past_is_passed_many_at_once(log: Log) -> None:
    await log.publish("a", key="k")
    await log.publish(*["x"] * 300, key="k", ttl=SECOND)
    await log.publish("z", key="k")
    first = await log.claim(1, now=log.start, ordered=True)
    await ack_in_order(log, first)
    second = await log.claim(1, now=log.start + SECOND, ordered=True)
    assert (texts(second.deliveries[0]), second.past) == (["z"], 300)


async def test_what_came_back_of_a_key_and_is_past_makes_capacity_for_what_is_behind_it(log: Log) -> None:
    await log.publish("a", "b", key="k", ttl=ACK_DEADLINE)
    await log.publish("c", key="k")
    await log.claim(now=log.start, ordered=True)
    texts_, past = [], 0
    for _ in range(3):
        claimed = await log.claim(now=log.start + ACK_DEADLINE, ordered=True)
        texts_ += texts(claimed.deliveries[0])
        past += claimed.past
    assert (texts_, past) == (["c"], 2)


# --- dead letters -------------------------------------------------------------------------------------------------


async def test_what_is_left_to_the_forwarder_is_in_rows_of_a_thousand_by_attempt(log: Log) -> None:
    await log.publish("came back", ttl=ACK_DEADLINE)
    await log.pull()
    for _ in range(11):
        await log.publish(*["x"] * 100, key="k", ttl=SECOND)
    await log.publish("alive", key="k")
    claimed = await log.claim(now=log.start + ACK_DEADLINE, ordered=True, gives_up_expired=True)
    assert (texts(claimed.deliveries[0]), claimed.past) == (["alive"], 1_101)
    rows = await log.rows(
        "SELECT attempt_number, failure, ordering_key, bit_count(open), upper(seqs) - lower(seqs) FROM"
        " delivery_attempts WHERE status = 'exhausted' AND next_delivery_at = 'infinity' ORDER BY attempt_id"
    )
    assert rows == [
        (0, "expired", None, 1_000, 1_000),
        (0, "expired", None, 100, 100),
        (1, "expired", None, 1, 1),
    ]
    assert await expired_events(log) == []  # the forwarder tells of them


# --- beside other rules ------------------------------------------------------------------------------------------


async def test_what_came_back_from_a_dead_letter_topic_is_delivered_however_late(log: Log) -> None:
    await log.publish("a", ttl=SECOND)
    [delivery] = await log.pull()
    await log.nack(delivery)
    await log.execute("UPDATE delivery_attempts SET redriven = true")
    assert await log.pull_texts(now=log.start + RETENTION / 2) == ["a"]


async def test_a_seek_back_does_not_bring_back_what_is_past(log: Log) -> None:
    await log.publish("a", ttl=SECOND)
    await log.publish("b")
    await log.acknowledge((await log.pull())[0])
    await log.execute("UPDATE cursors SET next_seq = 1")
    assert await log.pull_texts(now=log.start + SECOND) == ["b"]
