"""Sequences that name nothing: what a topic's transform has dropped (A11)."""

import pytest

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.core.log.messages import append_messages, encode_messages, encode_with_gaps
from broker.model.message import NewMessage
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log


def published(text: str, *, attributes: bool = False, key: str = "") -> list[NewMessage | None]:
    """A message for each character; none for a dot."""
    return [
        None
        if each == "."
        else NewMessage(data=each.encode(), attributes={"a": each} if attributes else {}, ordering_key=key)
        for each in text
    ]


@pytest.mark.parametrize("attributes", [False, True])
@pytest.mark.parametrize(
    "requests",
    [["ab.c"], ["..."], [".a", "b"], ["a.", "b", "c"], ["a", ".b", "."], ["a", "...", "b", "c", ".", "d"]],
)
async def test_a_flush_stores_what_is_there_under_its_own_sequence(
    log: Log, requests: list[str], attributes: bool
) -> None:
    """Publishes that are stored together must not close up a gap."""
    batches = []
    for number, request in enumerate(requests):
        messages = published(request, attributes=attributes and number % 2 == 0)
        stored = [message for message in messages if message is not None]
        batches.append(encode_messages(stored) if len(stored) == len(messages) else encode_with_gaps(messages))
    async with log.session() as session:
        appended = await append_messages(session, shard_id=log.shard_id, requests=batches, now=log.start)
    assert appended is not None
    flush = "".join(requests)
    deliveries = await log.pull()
    found = {message.seq - appended.first_seq: message for each in deliveries for message in each.messages}
    assert {place: message.data.decode() for place, message in found.items()} == {
        place: each for place, each in enumerate(flush) if each != "."
    }
    assert all(
        message.attributes == "{}" or message.data.decode() in message.attributes for message in found.values()
    )
    [(head,)] = await log.rows("SELECT head FROM shards")
    assert head == appended.first_seq + len(flush) - 1
    await log.publish("after")
    assert await log.pull_texts() == ["after"]


async def test_what_stands_around_a_gap_comes_again_and_is_acked(log: Log) -> None:
    async with log.session() as session:
        request = encode_with_gaps(published("a..b.c"), ['{"shared": "x"}'] * 3)
        await append_messages(session, shard_id=log.shard_id, requests=[request], now=log.start)
    assert await log.pull_texts() == ["a", "b", "c"]
    later = log.start + ACK_DEADLINE + SECOND
    again = await log.pull(now=later)
    assert [message.data for each in again for message in each.messages] == [b"a", b"b", b"c"]
    assert all(message.attributes == '{"shared": "x"}' for each in again for message in each.messages)
    for delivery in again:
        await log.acknowledge(delivery)
    assert await log.pull(now=later + 2 * ACK_DEADLINE) == []


async def test_keys_pass_gaps(log: Log) -> None:
    for text in ("1.2", "..", "3"):
        messages = published(text, key="k")
        async with log.session() as session:
            encoded = encode_with_gaps(messages)
            await append_messages(session, shard_id=log.shard_id, requests=[encoded], now=log.start)
    got = []
    for _ in range(3):
        [delivery] = await log.pull(ordered=True, max_run=1)
        got += [message.data.decode() for message in delivery.messages]
        name = log.name(delivery)
        async with log.session() as session:
            await acknowledge_in_order(
                session, shard_id=log.shard_id, acks={name: {0}}, exactly_once=set(), now=log.start
            )
    assert got == ["1", "2", "3"]
