"""What a claim hands out (A4, A7, A10)."""

from datetime import timedelta

from broker.core.claiming.transaction import fresh
from broker.core.claiming.transaction.claim import MANY, TURN_COST
from broker.core.claiming.transaction.request import Gone, Quiet
from broker.model.retry_policy import RetryPolicy
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, texts
from tests.query_plans.recorder import Recorder

MILLISECOND = timedelta(milliseconds=1)


async def test_messages_come_in_publish_order_each_once(log: Log) -> None:
    await log.publish("a", "b")
    await log.publish("c")
    assert [await log.pull_texts(2), await log.pull_texts(2), await log.pull_texts(2)] == [["a", "b"], ["c"], []]


async def test_one_claim_serves_several_pulls_each_with_an_attempt_of_its_own(log: Log) -> None:
    await log.publish("a", "b", "c", "d")
    claimed = await log.claim(2, 1, 5)
    assert [texts(deliveries) for deliveries in claimed.deliveries] == [["a", "b"], ["c"], ["d"]]
    assert len({delivery.attempt_id for deliveries in claimed.deliveries for delivery in deliveries}) == 3
    assert [bits for *_, bits in await log.attempts()] == ["11", "1", "1"]


async def test_a_response_is_one_row_however_many_messages_it_has(log: Log) -> None:
    await log.publish(*map(str, range(1000)))
    [delivery] = await log.pull(1000)
    assert len(delivery.messages) == 1000
    assert await log.attempts() == [("delivering", 1, "1" * 1000)]


async def test_the_receipt_of_a_response_costs_no_row(log: Log) -> None:
    """Official clients ask for another deadline for all of a response the moment they have it."""
    await log.publish(*map(str, range(1000)))
    [delivery] = await log.pull(1000)
    for seconds in (10, 30):
        await log.modify_ack_deadline(delivery, None, log.start + seconds * SECOND)
    assert await log.attempts() == [("delivering", 1, "1" * 1000)]


async def test_unacked_messages_are_redelivered_exactly_at_their_deadline(log: Log) -> None:
    await log.publish("a")
    await log.pull()
    assert await log.pull_texts(now=log.start + ACK_DEADLINE - MILLISECOND) == []
    [delivery] = await log.pull(now=log.start + ACK_DEADLINE)
    assert (texts([delivery]), delivery.attempt_number) == (["a"], 2)


async def test_an_idle_claim_says_when_the_next_redelivery_is_due(log: Log) -> None:
    assert (await log.claim()).rest == Quiet()
    await log.publish("a")
    await log.pull()
    assert (await log.claim()).rest == Quiet(log.start + ACK_DEADLINE)


async def test_acked_messages_never_come_back(log: Log) -> None:
    await log.publish("a", "b", "c")
    [delivery] = await log.pull()
    assert await log.acknowledge(delivery, [0, 2]) == set()
    assert await log.pull_texts(now=log.start + ACK_DEADLINE) == ["b"]


async def test_a_message_that_was_partly_acked_again_and_again_keeps_its_ack_ids(log: Log) -> None:
    await log.publish(*"abcdef")
    [delivery] = await log.pull()
    await log.modify_ack_deadline(delivery, [1, 4], log.start + 60 * SECOND)
    assert await log.nack(delivery, [2]) == set()
    assert await log.acknowledge(delivery, [0, 1, 4]) == set()
    assert await log.pull_texts(now=log.start) == ["c"]
    assert await log.acknowledge(delivery, [2]) == {2}  # redelivered: this ack id is stale
    assert await log.pull_texts(now=log.start + ACK_DEADLINE) == ["c", "d", "f"]


async def test_half_of_a_claim_is_kept_for_fresh_messages(log: Log) -> None:
    """A thousand messages that always fail must not starve the rest."""
    await log.publish(*[f"poison{n}" for n in range(100)])
    [poison] = await log.pull(100)
    await log.nack(poison)
    await log.publish(*[f"fresh{n}" for n in range(100)])
    pulled = await log.pull_texts(20)
    assert [text[:5] for text in pulled] == ["poiso"] * 10 + ["fresh"] * 10
    assert len(await log.pull_texts(1000)) == 180


async def test_a_single_slot_goes_to_the_redelivery_first(log: Log) -> None:
    await log.publish("old")
    [delivery] = await log.pull()
    await log.nack(delivery)
    await log.publish("new")
    assert [await log.pull_texts(1), await log.pull_texts(1)] == [["old"], ["new"]]


async def test_a_nack_is_due_after_the_retry_delay_of_its_attempt(log: Log) -> None:
    policy = RetryPolicy(minimum_backoff=10 * SECOND, maximum_backoff=25 * SECOND)
    await log.publish("a")
    now = log.start
    for attempt_number, delay in ((1, 10), (2, 20), (3, 25), (4, 25)):
        [delivery] = await log.pull(now=now, retry_policy=policy)
        assert delivery.attempt_number == attempt_number
        await log.nack(delivery, now=now, retry_policy=policy)
        assert await log.pull_texts(now=now + delay * SECOND - MILLISECOND, retry_policy=policy) == []
        now += delay * SECOND


async def test_an_expired_deadline_starts_the_retry_delay_too(log: Log) -> None:
    policy = RetryPolicy(minimum_backoff=10 * SECOND, maximum_backoff=600 * SECOND)
    await log.publish("a")
    await log.pull(retry_policy=policy)
    expired = log.start + ACK_DEADLINE
    claimed = await log.claim(now=expired, retry_policy=policy)
    assert (texts(claimed.deliveries[0]), claimed.rest) == ([], Quiet(expired + 10 * SECOND))
    assert await log.pull_texts(now=expired + 10 * SECOND - MILLISECOND, retry_policy=policy) == []
    assert await log.pull_texts(now=expired + 10 * SECOND, retry_policy=policy) == ["a"]


async def test_a_response_ends_at_its_byte_budget_and_the_rest_comes_with_the_next(log: Log) -> None:
    await log.publish(*["x" * 1000] * 10)
    sizes = []
    while pulled := await log.pull_texts(100, max_bytes=3500):
        sizes.append(len(pulled))
    assert sum(sizes) == 10
    assert max(sizes) == 3


async def test_a_message_larger_than_the_budget_comes_alone(log: Log) -> None:
    await log.publish("x" * 5000, "small")
    assert [len(text) for text in await log.pull_texts(100, max_bytes=1000)] == [5000]
    assert await log.pull_texts(100, max_bytes=1000) == ["small"]


async def test_redeliveries_keep_to_the_byte_budget_too(log: Log) -> None:
    await log.publish(*["x" * 1000] * 10)
    [delivery] = await log.pull(100)
    await log.nack(delivery)
    pulled = 0
    while batch := await log.pull_texts(100, max_bytes=3500):
        assert len(batch) <= 3
        pulled += len(batch)
    assert pulled == 10


async def test_messages_past_the_retention_are_not_delivered(log: Log) -> None:
    await log.publish("old")
    later = log.start + timedelta(minutes=9)
    await log.publish("new", now=later)
    assert await log.pull_texts(now=later, retention=timedelta(minutes=5)) == ["new"]


async def test_redeliveries_past_the_retention_are_forgotten(log: Log) -> None:
    """A claim subtracts what it did not find, so that nothing is due for ever."""
    await log.publish("old")
    await log.pull()
    later = log.start + timedelta(minutes=9)
    claimed = await log.claim(now=later, retention=timedelta(minutes=5))
    assert texts(claimed.deliveries[0]) == []
    assert await log.attempts() == []


async def test_released_messages_are_due_at_once_and_the_attempt_is_not_counted(log: Log) -> None:
    from broker.core.acking.delivery_attempts import release_attempts

    await log.publish("a", "b")
    [delivery] = await log.pull()
    async with log.database.hot() as connection:
        await release_attempts(
            connection,
            shard_id=log.shard_id,
            subscription_id=log.subscription.subscription_id,
            attempt_ids=[delivery.attempt_id],
            now=log.start,
        )
    [again] = await log.pull()
    assert (texts([again]), again.attempt_number) == (["a", "b"], 1)


async def test_a_subscription_without_a_cursor_is_gone(log: Log) -> None:
    await log.publish("a")
    assert (await log.claim(subscription_id=999)).rest == Gone()


async def test_scattered_redeliveries_are_split_into_rows_that_lie_close(log: Log) -> None:
    """A row that covered a wide range would make its next redelivery read past what is not its own."""
    await log.publish(*map(str, range(1000)))
    [delivery] = await log.pull(1000)
    kept = [0, 1, 2, 500, 501, 999]
    await log.acknowledge(delivery, [n for n in range(1000) if n not in kept])
    redelivered = await log.pull(now=log.start + ACK_DEADLINE)
    assert texts(redelivered) == [str(n) for n in kept]
    assert [len(delivery.messages) for delivery in redelivered] == [3, 2, 1]
    for delivery in redelivered:
        assert await log.acknowledge(delivery) == set()
    assert await log.attempts() == []


async def test_messages_whose_retry_delay_only_begins_do_not_hide_one_that_is_ready(log: Log) -> None:
    """Found by the model."""
    policy = RetryPolicy(minimum_backoff=4 * SECOND, maximum_backoff=9 * SECOND)
    await log.publish("ready", "expired")
    [ready] = await log.pull(1, retry_policy=policy)
    [expired] = await log.pull(1, retry_policy=policy)
    await log.nack(ready, retry_policy=policy)
    await log.modify_ack_deadline(expired, None, log.start + SECOND)
    assert await log.pull_texts(1, now=log.start + 4 * SECOND, retry_policy=policy) == ["ready"]


async def test_a_lease_that_was_given_up_is_not_extended(log: Log) -> None:
    """Node's client sends a nack ahead of the deadline that it asks for on receipt."""
    await log.publish("a", "b")
    [delivery] = await log.pull()
    await log.nack(delivery, [0])
    ignored = await log.modify_ack_deadline(delivery, None, log.start + 60 * SECOND)
    assert ignored == {0}
    assert await log.pull_texts(now=log.start + SECOND) == ["a"]


async def test_what_is_left_of_a_nack_that_was_claimed_in_part_stays_nacked(log: Log) -> None:
    await log.publish("a", "b")
    [delivery] = await log.pull()
    await log.nack(delivery)
    assert await log.pull_texts(1, now=log.start + SECOND) == ["a"]
    assert await log.modify_ack_deadline(delivery, [1], log.start + 60 * SECOND) == {1}
    assert await log.pull_texts(now=log.start + SECOND) == ["b"]


async def test_a_body_that_does_not_come_along_with_the_look_is_read_at_the_end(log: Log) -> None:
    """Each pull gets one message whatever its size; together they may read 20 bytes at first."""
    for text in ("a" * 100, "b" * 100, "c" * 100):
        await log.publish(text)
    async with log.database.hot() as connection:
        recorder = Recorder(connection)
        claimed = await log.claim(1, 1, max_bytes=10, connection=recorder)  # type: ignore[arg-type]
    assert [texts(deliveries) for deliveries in claimed.deliveries] == [["a" * 100], ["b" * 100]]
    assert fresh._READ_BATCHES in recorder.sent
    assert recorder.sent[fresh._READ_BATCHES]["first_batches"] == [2]


async def test_a_claim_at_one_place_reads_its_bodies_as_it_looks(log: Log) -> None:
    await log.publish("a", "b")
    await log.publish("c")
    async with log.database.hot() as connection:
        recorder = Recorder(connection)
        claimed = await log.claim(connection=recorder)  # type: ignore[arg-type]
    assert texts(claimed.deliveries[0]) == ["a", "b", "c"]
    assert fresh._READ_BATCHES not in recorder.sent
    assert recorder.round_trips == 2


async def test_many_messages_that_come_again_are_taken_up_in_turns_of_the_event_loop(log: Log) -> None:
    """Found in the log, shared out, handed out with their bodies: each is a step that others are let in before."""
    costs: list[int] = []

    async def turn(cost: int) -> None:
        costs.append(cost)

    await log.publish(*map(str, range(1_000)))
    [delivery] = await log.pull(1_000, turn=turn)
    await log.nack(delivery, range(MANY))
    assert len((await log.pull(1_000, turn=turn))[0].messages) == MANY
    assert not costs, "fewer are taken up sooner than anybody could wait for it"
    await log.nack(delivery)
    assert len((await log.pull(1_000, turn=turn))[0].messages) == 1_000 - MANY
    assert costs == [TURN_COST * (1_000 - MANY)] * 3
