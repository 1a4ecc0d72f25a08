"""kill -9 of brokers and of PostgreSQL's sessions while messages fall due: each comes once, in its time, under its
id; what was cancelled does not come (J1).
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from broker.model.timestamps import format_timestamp
from tests.durability.killing import kill_one, patiently
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, eventually, message, text

StartBroker = Callable[..., BrokerProcess]

REQUESTS, OF_A_REQUEST = 60, 20  # at the least, until enough of them were answered
LONGEST = 10.0  # seconds ahead
SEED = 20261124

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(180)]


def _later(data: str, dice: random.Random) -> Json:
    at = datetime.now(UTC) + timedelta(seconds=dice.uniform(0.1, LONGEST))
    return message(data, {"broker-deliver-at": format_timestamp(at)})


async def _publish(rest: Rest, dice: random.Random) -> tuple[dict[str, str], set[str], set[str]]:
    """Texts by the ids that were answered (of some requests nobody knows what became of them); which of these were
    cancelled, for that was answered; and those of which that is not known.
    """
    answered: dict[str, str] = {}
    cancelled, perhaps = set(), set()
    for number in itertools.count():
        if number >= REQUESTS and len(answered) > 200 and len(cancelled) > 5:
            break
        texts = [f"{number}-{n}" for n in range(OF_A_REQUEST)]
        with suppress(httpx.HTTPError, AssertionError):
            ids = await rest.publish(*(_later(data, dice) for data in texts))
            answered |= dict(zip(ids, texts, strict=True))
            perhaps.add(ids[0])
            if (await rest.call("DELETE", f"{rest.topic()}/scheduled/{ids[0]}")).status_code == 200:
                cancelled.add(ids[0])
        await asyncio.sleep(0.05)
    return answered, cancelled, perhaps - cancelled


async def test_each_message_comes_once_whatever_is_killed(start_broker: StartBroker, data_dir: Path) -> None:
    options = ("--data-dir", str(data_dir), "--port", "0", "--workers", "2")
    broker = await asyncio.to_thread(start_broker, *options)
    dice = random.Random(SEED)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic(extensions={"delay": True})
        await rest.create_subscription()
        publishing = asyncio.create_task(_publish(rest, random.Random(SEED)))
        killed: Counter[str] = Counter()

        async def kill_for(seconds: float) -> None:
            end = asyncio.get_running_loop().time() + seconds
            while asyncio.get_running_loop().time() < end or not publishing.done():
                await patiently(lambda: rest.ok("GET", rest.topic()))  # or there is nobody to be killed
                await asyncio.sleep(dice.uniform(0.1, 0.7))
                kill_one(broker, dice, killed)

        await kill_for(3.0)
        answered, cancelled, perhaps = await publishing
        await kill_for(LONGEST)

        async def all_came() -> bool:
            listed = await patiently(lambda: rest.ok("GET", f"{rest.topic()}/scheduled"))
            return "scheduledMessages" not in listed

        await eventually(all_came)
        came: list[Json] = []
        while received := await patiently(lambda: rest.pull(max_messages=1000)):
            came += [each["message"] for each in received]
            await patiently(lambda received=received: rest.acknowledge(received))  # type: ignore[misc]
    assert min(killed["session"], killed["worker"]) >= 1, killed
    texts = Counter(text({"message": each}) for each in came)
    assert max(texts.values()) == 1, "twice"
    ids = {each["messageId"]: text({"message": each}) for each in came}
    missing = {
        id_: data for id_, data in answered.items() if ids.get(id_) != data and id_ not in cancelled | perhaps
    }
    assert missing == {}
    assert cancelled & ids.keys() == set()
    early = [each for each in came if each["publishTime"] < each["attributes"]["broker-deliver-at"]]
    assert early == []
