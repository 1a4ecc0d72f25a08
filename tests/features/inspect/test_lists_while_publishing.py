"""Lists of messages page to their end while others publish, pull and acknowledge, without a gap or a duplicate."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fixtures.broker import Rest, message

pytestmark = pytest.mark.own_broker(shards_per_topic=3)

COUNT, BATCH, PAGE = 2_000, 50, "70"


@pytest.fixture
async def ids(rest: Rest) -> list[str]:
    """Messages of a topic with three shards and a subscription; their ids."""
    await rest.create_topic(messageRetentionDuration="3600s")
    await rest.create_subscription(ackDeadlineSeconds=600)
    found: list[str] = []
    for number in range(COUNT // BATCH):
        found += await rest.publish(*[message("text", {"n": str(number % 2)})] * BATCH)
    return found


@asynccontextmanager
async def others(rest: Rest, acked: set[str] | None = None) -> AsyncIterator[list[str]]:
    """Publishes within the block and pulls, and acknowledges some if `acked` is given.  Yields the new ids."""
    is_over, new = asyncio.Event(), list[str]()

    async def go_on() -> None:
        while not is_over.is_set():
            new.extend(await rest.publish(*["new"] * 3))
            if acked is not None:
                received = await rest.pull(max_messages=7)
                await rest.acknowledge(received[:2])
                acked.update(each["message"]["messageId"] for each in received[:2])

    task = asyncio.create_task(go_on())
    try:
        yield new
    finally:
        is_over.set()
        await task
    assert new


async def listed(rest: Rest, path: str, *, at_least: int, **query: str) -> list[str]:
    """All pages; or where new messages come last, those until there are some of these."""
    found: list[str] = []
    token = ""
    while True:
        params: dict[str, Any] = {"pageSize": PAGE, **query} | ({"pageToken": token} if token else {})
        page = await rest.ok("GET", f"{path}/messages", params=params)
        found += [(each.get("message") or each)["messageId"] for each in page.get("messages", [])]
        token = page.get("nextPageToken", "")
        if not token or len(found) > at_least + 200:
            return found


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("filter_text", ["", 'attributes.n = "1"'])
async def test_messages_of_a_topic(rest: Rest, ids: list[str], order: str, filter_text: str) -> None:
    expected = {each for place, each in enumerate(ids) if not filter_text or place // BATCH % 2}
    async with others(rest) as new:
        query = {"order": order} | ({"filter": filter_text} if filter_text else {})
        found = await listed(rest, rest.topic(), at_least=len(expected), **query)
    assert len(found) == len(set(found))
    assert set(found) - set(new) == expected


@pytest.mark.parametrize("state", ["", "waiting", "outstanding"])
async def test_messages_of_a_subscription(rest: Rest, ids: list[str], state: str) -> None:
    """What is acknowledged or pulled meanwhile may be missing where it is no longer; nothing else is."""
    out = {each["message"]["messageId"] for _ in range(5) for each in await rest.pull(max_messages=100)}
    acked: set[str] = set()
    async with others(rest, acked) as new:
        found = await listed(rest, rest.subscription(), at_least=COUNT, **({"state": state} if state else {}))
    assert len(found) == len(set(found))
    received = set(await listed(rest, rest.subscription(), at_least=10 * COUNT, state="outstanding"))
    stayed = {"": set(ids) - (received - out), "waiting": set(ids) - out - received, "outstanding": out}
    there = stayed[state] - acked
    assert there
    assert there <= set(found) <= {*ids, *new}
