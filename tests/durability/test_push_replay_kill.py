"""kill -9 of brokers and of PostgreSQL's sessions, again and again while failed pushes are recovered, and missing
ones replayed: counts are exact, nothing comes twice, nothing is lost, and those of a key come in order (G2).
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.processes import run_broker
from tests.durability.killing import drain_patiently, kill_until_done, patiently
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, eventually, message, text
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes

StartBroker = Callable[..., BrokerProcess]

KEYS, OF_A_KEY = [f"k{number}" for number in range(60)], 8
MESSAGES = len(KEYS) * OF_A_KEY
EVER = "2020-01-01T00:00:00Z"
NOWHERE = {"pushConfig": {"pushEndpoint": "http://127.0.0.1:9/nobody"}}
RATE = 200  # messages a second
SEED = 20261126
OPTIONS = ("--port", "0", "--workers", "2", "--shards-per-topic", "3", "--min-delivery-attempts", "1")

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(180)]


@asynccontextmanager
async def _started(start_broker: StartBroker, data_dir: Path) -> AsyncIterator[tuple[BrokerProcess, Rest]]:
    broker = await asyncio.to_thread(start_broker, "--data-dir", str(data_dir), *OPTIONS)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        yield broker, Rest(client, "projects/p")


async def _publish(rest: Rest, kind: str) -> None:
    for key in KEYS:
        await rest.publish(*(message(f"{kind} {key} {n}", orderingKey=f"{kind} {key}") for n in range(OF_A_KEY)))


def _assert_whole(came: list[str], *kinds: str) -> None:
    """Each of them once, and those of a key in order."""
    assert Counter(came) == Counter(f"{kind} {key} {n}" for kind in kinds for key in KEYS for n in range(OF_A_KEY))
    for kind in kinds:
        for key in KEYS:
            of_key = [each for each in came if each.startswith(f"{kind} {key} ")]
            assert of_key == [f"{kind} {key} {n}" for n in range(OF_A_KEY)]


async def test_a_recovery_is_exact_whatever_is_killed(start_broker: StartBroker, data_dir: Path) -> None:
    """Of what was dead-lettered, and of what was past its retention."""
    async with _started(start_broker, data_dir) as (broker, rest):
        await rest.create_topic()  # which retains nothing for its own sake
        await rest.create_topic("dead")
        await rest.create_subscription("dead-sub", "dead")
        policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
        await rest.create_subscription(deadLetterPolicy=policy, enableMessageOrdering=True)
        await rest.create_subscription("bystander")
        await _publish(rest, "failed")
        await _give_up(rest)
        await _publish(rest, "old")
        await _let_go(rest, data_dir)
        await rest.drain("bystander")
        await rest.ok("POST", f"{rest.subscription()}:modifyPushConfig", NOWHERE)
        await rest.ok("POST", f"{rest.subscription()}:pause", {})  # an endpoint that is set ends a pause
        body = {"startTime": EVER, "maxMessagesPerSecond": RATE}
        name = (await rest.ok("POST", f"{rest.subscription()}:recover", body))["name"]
        metadata = await kill_until_done(broker, rest, name, random.Random(SEED))
        assert metadata["counts"] == {"redriven": str(MESSAGES), "replayed": str(MESSAGES)}
        assert metadata["done"] == str(2 * MESSAGES)
        no_config: Json = {"pushConfig": {}}  # which ends it too
        await patiently(lambda: rest.ok("POST", f"{rest.subscription()}:modifyPushConfig", no_config))
        _assert_whole(await drain_patiently(rest), "failed", "old")
        for other in ("bystander", "dead-sub"):
            assert await patiently(lambda other=other: rest.pull(other)) == []  # type: ignore[misc]


async def _give_up(rest: Rest) -> None:
    """One of a key after the other: the ack deadline of each passes."""

    async def given_up() -> bool:
        if received := await rest.pull(max_messages=1000):
            await rest.modify_ack_deadline(received, 1)
        position = await rest.ok("GET", f"{rest.subscription('dead-sub')}/snapshot")
        return int(position["undeliveredMessages"]) == MESSAGES

    await eventually(given_up)


async def _let_go(rest: Rest, data_dir: Path) -> None:
    """For a while the subscription retains nothing, which no call can bring about; whoever pulls finds that."""
    await asyncio.sleep(1.0)
    for retention in ("1 second", "7 days"):
        change = f"UPDATE subscriptions SET message_retention = '{retention}' WHERE name = '{rest.subscription()}'"
        done = await asyncio.to_thread(
            run_broker, "database", "--data-dir", str(data_dir), "psql", "-c", f"{change} RETURNING 1"
        )
        assert "UPDATE 1" in done.stdout, done
        for verb in ("pause", "resume"):  # which every process hears of
            await rest.ok("POST", f"{rest.subscription()}:{verb}", {})
        if retention == "1 second":
            await eventually(lambda: _has_let_go(rest))


async def _has_let_go(rest: Rest) -> bool:
    """A message of each shard that comes says that what is before it was passed."""
    for n in range(9):
        await rest.publish(message("young", orderingKey=f"young {n}"))
    young = await rest.drain()
    assert {text(each) for each in young} <= {"young"}, "it is too early, or it is not heard of"
    return len({each["message"]["messageId"][:-15] for each in young}) == 3


async def test_a_replay_for_a_new_endpoint_is_exact_whatever_is_killed(
    start_broker: StartBroker, data_dir: Path, push_sink: PushSink
) -> None:
    """Of what went to the endpoint before; what this one has taken already does not come again."""
    async with _started(start_broker, data_dir) as (broker, rest):
        pushes = Pushes(rest, push_sink)
        await rest.create_topic(messageRetentionDuration="3600s")
        journal: Json = {"extensions": {"journal": {"mode": "ALL"}}}
        first = await pushes.subscribe(enableMessageOrdering=True, **journal)
        await _publish(rest, "before")
        assert len(await pushes.taken_all(first, MESSAGES)) == MESSAGES
        await rest.ok("POST", f"{rest.subscription()}:pause", {})
        await _publish(rest, "backlog")
        second = pushes.path()
        await pushes.push_to(second)
        await rest.ok("POST", f"{rest.subscription()}:resume", {})
        _assert_whole(await pushes.taken_all(second, MESSAGES), "backlog")
        await eventually(lambda: _is_settled(rest))
        await rest.ok("POST", f"{rest.subscription()}:pause", {})
        body = {"startTime": EVER, "maxMessagesPerSecond": RATE}
        name = (await rest.ok("POST", f"{rest.subscription()}:replayMissing", body))["name"]
        metadata = await kill_until_done(broker, rest, name, random.Random(SEED))
        assert metadata["counts"] == {"replayed": str(MESSAGES), "delivered": str(MESSAGES)}
        await patiently(lambda: rest.ok("POST", f"{rest.subscription()}:resume", {}))
        _assert_whole(await pushes.taken_all(second, 2 * MESSAGES), "before", "backlog")
        await eventually(lambda: patiently(lambda: _is_settled(rest)))
        assert len(await pushes.taken(second)) == 2 * MESSAGES


async def _is_settled(rest: Rest) -> bool:
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    out = sum(int(shard["outstandingMessages"]) for shard in position["shards"])
    return not (int(position["undeliveredMessages"]) or out)
