"""Claims of a subscription with a filter (A3)."""

from broker.domain.message import NewMessage
from broker.filtering.jsonpath import to_jsonpath
from broker.filtering.parser import parse_filter
from broker.store.claim import fresh
from broker.store.claim.request import More
from broker.store.log.messages import append_messages, encode_messages
from tests.fixtures.log import ACK_DEADLINE, Log, texts

PROD = to_jsonpath(parse_filter('attributes.env = "prod"'))


async def publish(log: Log, *envs: str) -> None:
    """A message for each; its data is its number and its environment."""
    messages = [
        NewMessage(data=f"{number}{env}".encode(), attributes={"env": env}) for number, env in enumerate(envs)
    ]
    async with log.session() as session:
        await append_messages(session, shard_id=log.shard_id, requests=[encode_messages(messages)], now=log.start)


async def next_seq(log: Log) -> int:
    [(seq,)] = await log.rows("SELECT next_seq FROM cursors")
    return int(seq)


async def test_only_matching_messages_are_delivered_and_the_others_are_passed(log: Log) -> None:
    await publish(log, "prod", "test", "prod", "test")
    assert await log.pull_texts(filter_path=PROD) == ["0prod", "2prod"]
    assert await next_seq(log) == 5
    assert await log.pull_texts(filter_path=PROD) == []


async def test_a_pull_that_is_full_does_not_pass_what_it_has_not_seen(log: Log) -> None:
    await publish(log, "test", "prod", "test", "prod", "prod")
    assert await log.pull_texts(1, filter_path=PROD) == ["1prod"]
    assert await next_seq(log) == 3
    assert await log.pull_texts(filter_path=PROD) == ["3prod", "4prod"]


async def test_a_byte_budget_ends_a_filtered_read_too(log: Log) -> None:
    await publish(log, *["prod", "test"] * 10)
    pulled = []
    while batch := await log.pull_texts(filter_path=PROD, max_bytes=500):
        assert len(batch) < 10
        pulled += batch
    assert pulled == [f"{number}prod" for number in range(0, 20, 2)]


async def test_a_long_stretch_without_a_match_is_passed_in_bounded_steps(log: Log, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(fresh, "MAX_SCANNED", 10)
    await publish(log, *["test"] * 75, "prod")
    claimed = await log.claim(filter_path=PROD)
    assert (texts(claimed.deliveries[0]), claimed.rest) == ([], More())
    assert await next_seq(log) == 11
    while not claimed.deliveries[0]:
        assert claimed.rest == More()
        claimed = await log.claim(filter_path=PROD)
    assert texts(claimed.deliveries[0]) == ["75prod"]


async def test_matches_far_apart_are_redelivered_and_acked_like_any_other(log: Log) -> None:
    await publish(log, *(["prod"] + ["test"] * 50) * 4)
    deliveries = await log.pull(filter_path=PROD)
    assert [len(delivery.messages) for delivery in deliveries] == [1, 1, 1, 1]
    await log.acknowledge(deliveries[1])
    again = await log.pull(filter_path=PROD, now=log.start + ACK_DEADLINE)
    assert texts(again) == ["0prod", "102prod", "153prod"]
    assert {delivery.attempt_number for delivery in again} == {2}
