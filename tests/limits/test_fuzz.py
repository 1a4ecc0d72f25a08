"""JSON and ack ids that are nearly right, or not at all: the canonical error, and nothing else happens.

test_schemathesis.py generates bodies from the specification; these are below it: what is no JSON, or barely.
"""

import random
from collections.abc import AsyncIterator

import httpx
import pytest

from broker.model.ack_id import AttemptName, make_ack_ids
from tests.fixtures.broker import BrokerProcess, Json, Rest, text
from tests.fixtures.registered import ROUTES
from tests.limits.conftest import GoodClient, good_client

pytestmark = [pytest.mark.slow, pytest.mark.ci]

SETTINGS = {"BROKER_PULL_WAIT_SECONDS": "0.05"}
SEEDS = range(4)
DEEP = 100_000
BODIES = {
    "nested arrays": b"[" * DEEP,
    "nested arrays, closed": b"[" * DEEP + b"]" * DEEP,
    "nested objects": b'{"a":' * DEEP,
    "nested objects, closed": b'{"messages":' * DEEP + b"1" + b"}" * DEEP,
    "nested in a field": b'{"topic":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "a number of 300,000 digits": b'{"maxMessages":' + b"9" * 300_000 + b"}",
    "a number beyond 64 bits": b'{"maxMessages":99999999999999999999,"ackDeadlineSeconds":1e999}',
    "a small number": b'{"maxMessages":1e-999999999,"ackDeadlineSeconds":-1e308}',
    "not a number": b'{"maxMessages":NaN,"ackDeadlineSeconds":Infinity}',
    "NaN as a text": b'{"maxMessages":"NaN","ackDeadlineSeconds":"-Infinity"}',
    "the same key twice": b'{"maxMessages":1,"maxMessages":"x","messages":[],"messages":1,"ackIds":[],"ackIds":{}}',
    "wrong types": b'{"messages":{"data":1},"ackIds":"x","maxMessages":[],"topic":{},"labels":[1],"time":true}',
    "wrong types within": b'{"messages":[[],{},"x",1,null],"ackIds":[null,{},1],"pushConfig":[{}]}',
    "a lone surrogate": b'{"messages":[{"data":"eA==","attributes":{"\\ud800":"\\udfff"}}],"topic":"\\ud800"}',
    "invalid UTF-8": b'{"messages":[{"data":"eA==","attributes":{"\xff":"\xc3\x28"}}],"topic":"\xed\xa0\x80"}',
    "a byte order mark": b"\xef\xbb\xbf{}x",
    "UTF-16": '{"maxMessages":1}'.encode("utf-16"),
    "a NUL": b'{"messages":[{"data":"eA==","orderingKey":"\\u0000"}],"topic":"\\u0000","ackIds":["\\u0000"]}',
    "base64 that is none": b'{"messages":[{"data":"!!!!"},{"data":"e"},{"data":"\\u00e9=="}],"ackIds":["!"]}',
    "base64 with spaces": b'{"messages":[{"data":"e A = ="}]}',
    "a text of 1 MB": b'{"messages":[{"data":"eA==","orderingKey":"' + b"k" * 1_000_000 + b'"}]}',
    "a key of 1 MB": b'{"' + b"k" * 1_000_000 + b'":1}',
    "an ack id of 1 MB": b'{"ackIds":["' + b"A" * 1_000_000 + b'"],"ackDeadlineSeconds":10}',
    "many empty ack ids": b'{"ackDeadlineSeconds":10,"ackIds":[' + b'"",' * 100_000 + b'""]}',
    "a text alone": b'"text"',
    "null": b"null",
    "a number alone": b"-0",
    "cut off": b'{"messages":[{"data":"eA=',
    "more than one": b"{}{}",
    "noise": bytes(range(256)),
    "a huge page": b'{"pageSize":2147483648}',
    "years": b'{"time":"9999999-01-01T00:00:00Z","messageRetentionDuration":"1e300s","ackDeadlineSeconds":"10s"}',
    "a time that is none": b'{"time":"2023-02-30T25:61:61Z","messageRetentionDuration":"-0.0000000001s"}',
}


@pytest.fixture
async def good(broker: BrokerProcess) -> AsyncIterator[GoodClient]:
    async with good_client(broker) as good:
        yield good


def check(answer: httpx.Response) -> None:
    """An answer as documented, and no fault of the broker's."""
    assert answer.headers["content-type"].startswith("application/json")
    if answer.status_code != 200:
        assert answer.json()["error"]["code"] == answer.status_code
        assert answer.status_code < 500, answer.text


@pytest.mark.parametrize("name", BODIES)
async def test_no_body_harms_the_broker_on_any_route(good: GoodClient, name: str) -> None:
    rest = Rest(good.rest.client, f"{good.rest.project}-other")
    await rest.create_topic()
    await rest.create_subscription()
    for route in ROUTES:
        if route.method in ("GET", "DELETE"):
            continue
        names = {"topics": "topic", "subscriptions": "sub", "projects": rest.project.split("/")[1]}
        segments, colon, verb = route.path.partition(":")
        parts = segments.split("/")
        for index in range(1, len(parts), 2):
            parts[index] = names.get(parts[index - 1], "other")
        check(await rest.call(route.method, "/".join(parts) + colon + verb, content=BODIES[name]))


async def _delivered(rest: Rest, name: str, count: int) -> list[Json]:
    await rest.create_topic(name)
    await rest.create_subscription(name, topic=name, ackDeadlineSeconds=600)
    await rest.publish(*[f"{name} {index}" for index in range(count)], topic=name)
    received = await rest.pull(name)
    assert len(received) == count
    return received


def _mutated(chance: random.Random, ack_id: str, others: list[str]) -> str:
    """An ack id that nobody was given for this subscription."""
    at = chance.randrange(len(ack_id))
    part = chance.randrange(1, len(ack_id))
    other = chance.choice(others)
    return chance.choice(
        [
            ack_id[:at] + chr(ord(ack_id[at]) ^ 1 << chance.randrange(7)) + ack_id[at + 1 :],  # a bit flipped
            ack_id[:part],
            ack_id + ack_id[:part],
            ack_id[::-1],
            ack_id.swapcase(),
            f" {ack_id}",
            f"{ack_id}=",
            ack_id.translate(str.maketrans("-_", "+/")) + "é",
            other,
            other[:36] + ack_id[36:],
            make_ack_ids(AttemptName(chance.randrange(10**9, 10**12), 1, chance.randrange(1, 1 << 62), 5), [0])[0],
            chance.randbytes(part).hex(),
        ]
    )


@pytest.mark.parametrize("seed", SEEDS)
async def test_ack_ids_that_were_not_given_settle_nothing(good: GoodClient, seed: int) -> None:
    rest, chance = good.rest, random.Random(seed)
    mine = [m["ackId"] for m in await _delivered(rest, "mine", 10)]
    others = [m["ackId"] for m in await _delivered(rest, "others", 10)]
    for _ in range(25):
        forged = _mutated(chance, chance.choice(mine), others)
        if forged in mine:
            continue
        ack_ids = [*mine[: chance.randrange(3)], forged]  # one that is wrong refuses the others with it
        chance.shuffle(ack_ids)
        path, body = f"{rest.subscription('mine')}:acknowledge", {"ackIds": ack_ids}
        if chance.random() < 0.5:
            path, body = f"{rest.subscription('mine')}:modifyAckDeadline", {**body, "ackDeadlineSeconds": 0}  # type: ignore[dict-item]
        assert (await rest.error("POST", path, body))[0] == "INVALID_ARGUMENT", forged
    for name, ack_ids in (("mine", mine), ("others", others)):
        assert await rest.pull(name) == []  # nothing was released
        body = {"ackIds": ack_ids, "ackDeadlineSeconds": 0}  # type: ignore[dict-item]
        assert await rest.ok("POST", f"{rest.subscription(name)}:modifyAckDeadline", body) == {}
        again = await rest.drain(name)
        assert sorted(map(text, again)) == sorted(f"{name} {index}" for index in range(10))  # nothing was acked
