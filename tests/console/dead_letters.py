"""Dead letters for the pages of the console."""

from collections.abc import Sequence

from tests.fixtures.broker import Json, Rest, eventually

_BATCH = 1_000


async def make_dead_letters(
    rest: Rest,
    messages: Sequence[str | Json],
    *,
    subscription: str = "worker",
    topic: str = "work",
    dead_letter_topic: str = "dead",
) -> list[str]:
    """Publish messages to a new topic, and have a new subscription reject them all; return their ids."""
    await rest.create_topic(dead_letter_topic)
    await rest.create_topic(topic)
    await rest.create_subscription(f"{dead_letter_topic}-archive", topic=dead_letter_topic)
    policy = {"deadLetterTopic": rest.topic(dead_letter_topic), "maxDeliveryAttempts": 5}
    await rest.create_subscription(subscription, topic=topic, deadLetterPolicy=policy)
    ids: list[str] = []
    for first in range(0, len(messages), _BATCH):
        ids += await rest.publish(*messages[first : first + _BATCH], topic=topic)
    rejected = 0
    while rejected < len(ids):
        if ack_ids := [each["ackId"] for each in await rest.pull(subscription, _BATCH)]:
            await rest.ok("POST", f"{rest.subscription(subscription)}:reject", {"ackIds": ack_ids})
        rejected += len(ack_ids)

    async def are_dead() -> bool:
        path = f"{rest.subscription(subscription)}/deadLetters"
        found = await rest.ok("GET", path, params={"groupBy": "reason"})
        return sum(group["count"] for group in found["groups"]) == len(ids)

    await eventually(are_dead, seconds=300)
    return ids
