"""kill -9 of brokers and of PostgreSQL's sessions while publishers send each request until it is answered, and once
more: each message is stored once, and has one id (J5).
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.durability.killing import kill_one, patiently
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, message, text

StartBroker = Callable[..., BrokerProcess]

PUBLISHERS, REQUESTS, OF_A_REQUEST = 4, 15, 5
SEED = 20261125

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(180)]


async def _until_answered(rest: Rest, messages: list[Json]) -> tuple[list[str], int]:
    """And how often it was sent in vain: of some of these nobody knows what became."""
    for failures in range(1_000):
        try:
            return await rest.publish(*messages), failures
        except (httpx.HTTPError, AssertionError):
            await asyncio.sleep(0.02)
    raise AssertionError("never answered")


async def _publish(rest: Rest, number: int) -> tuple[dict[str, str], int]:
    """Ids by texts; two publishers each send the same."""
    ids: dict[str, str] = {}
    in_vain = 0
    for request in range(REQUESTS):
        names = [f"{number // 2}-{request}-{n}" for n in range(OF_A_REQUEST)]
        messages = [message(name, {"broker-dedup-id": name}) for name in names]
        first, failures = await _until_answered(rest, messages)
        again, _ = await _until_answered(rest, messages[::-1])
        assert again[::-1] == first
        ids |= dict(zip(names, first, strict=True))
        in_vain += failures
    return ids, in_vain


async def test_each_message_is_stored_once_whatever_is_killed(start_broker: StartBroker, data_dir: Path) -> None:
    options = ("--data-dir", str(data_dir), "--port", "0", "--workers", "2")
    broker = await asyncio.to_thread(start_broker, *options)
    dice = random.Random(SEED)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic(extensions={"deduplication": {"window": "3600s"}})
        await rest.create_subscription()
        publishing = asyncio.gather(*(_publish(rest, number) for number in range(PUBLISHERS)))
        killed: Counter[str] = Counter()
        while not publishing.done():
            await patiently(lambda: rest.ok("GET", rest.topic()))  # or there is nobody to be killed
            await asyncio.sleep(dice.uniform(0.05, 0.4))
            kill_one(broker, dice, killed)
        published = await publishing
        came: list[Json] = []
        while received := await patiently(lambda: rest.pull(max_messages=1000)):
            came += [each["message"] for each in received]
            await patiently(lambda received=received: rest.acknowledge(received))  # type: ignore[misc]
    assert min(killed["session"], killed["worker"]) >= 1, killed
    assert sum(in_vain for _, in_vain in published) >= 1
    ids: dict[str, str] = {}
    for answered, _ in published:
        for name, id_ in answered.items():
            assert ids.setdefault(name, id_) == id_, "two publishers were told two ids"
    assert Counter(each["messageId"] for each in came).keys() == set(ids.values())
    stored = {each["messageId"]: text({"message": each}) for each in came}
    assert sorted(stored.values()) == sorted(ids), "each once"
    assert {name: id_ for id_, name in stored.items()} == ids
