"""Large bodies, many at once; bodies that become large; callers that leave."""

import asyncio
import gzip
import zlib
from typing import Any, cast

import httpx
import pytest

from broker.api.limits.admission import admission_of
from broker.api.limits.request_memory import RequestMemory
from broker.api.rest.body import BodyReader
from broker.api.rpc import Size
from broker.fairness.loop_turns import LoopTurns
from broker.model.errors import InvalidArgument
from broker.net.http1.exchange import Exchange
from broker.net.http1.head import Head
from broker.net.limits.payload import MAX_PAYLOAD_BYTES
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually
from tests.limits.conftest import MEGABYTE, Memory, good_client, rss
from tests.limits.raw import calling, request

SETTINGS = {"BROKER_REQUEST_MEMORY_MB": "50"}
BOMB = gzip.compress(b"\0" * 50 * MEGABYTE, compresslevel=9)  # 50 KB


async def test_twelve_bodies_of_10_mb_at_once_are_served_or_told_to_come_back(broker: BrokerProcess) -> None:
    body = b'{"messages":[{"data":"%s"}]}' % (b"eHh4" * 2_400_000)

    async def publish(rest: Rest) -> int:
        async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
            answer = await client.post(f"/v1/{rest.topic('large')}:publish", content=body)
        assert answer.status_code in (200, 429), answer.text
        assert answer.status_code == 200 or int(answer.headers["Retry-After"]) > 0
        return answer.status_code

    async with good_client(broker) as good:
        await good.rest.create_topic("large")
        assert await publish(good.rest) == 200
        before = rss(broker)
        async with Memory(broker) as memory:
            statuses = await asyncio.gather(*[publish(good.rest) for _ in range(12)])
        assert 200 in statuses
        assert memory.grown < 600 * MEGABYTE
        await eventually(lambda: rss(broker) - before < 150 * MEGABYTE)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_inflates_beyond_all_bounds_is_not_inflated(broker: BrokerProcess, encoding: str) -> None:
    bomb = BOMB if encoding == "gzip" else zlib.compress(b"\0" * 50 * MEGABYTE, 9)
    async with good_client(broker) as good:

        async def send(path: str) -> tuple[str, str]:
            headers = {"Content-Encoding": encoding}
            return await good.rest.error("POST", path, content=bomb, headers=headers)

        topic, subscription = good.rest.topic(), good.rest.subscription()
        paths = [f"{topic}:publish", f"{subscription}:pull", f"{subscription}:acknowledge"]
        async with Memory(broker) as memory:
            answers = await asyncio.gather(*[send(path) for path in paths * 5])
        codes = {code for code, _ in answers}
        assert {"INVALID_ARGUMENT"} <= codes <= {"INVALID_ARGUMENT", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}
        for code, text in answers:
            refusals = (
                ("exceeds the limit", "200 times as large") if code == "INVALID_ARGUMENT" else ("compressed",)
            )
            assert any(refusal in text for refusal in refusals), text
        assert memory.grown < 150 * MEGABYTE


async def test_a_body_of_several_gzip_members_is_read_as_a_whole(broker: BrokerProcess) -> None:
    """It was refused, or cut off after the first member without a word."""
    async with good_client(broker) as good:
        rest = good.rest
        await rest.create_topic("members")
        await rest.create_subscription("members", topic="members")
        parts = [b'{"messages":[{"data":"eA=="}', b',{"data":"eQ=="}', b"]}"]
        content = b"".join(map(gzip.compress, parts))
        await rest.ok(
            "POST", f"{rest.topic('members')}:publish", content=content, headers={"Content-Encoding": "gzip"}
        )
        whole = gzip.compress(b'{"maxMessages":2}') + gzip.compress(b"  ")
        path = f"{rest.subscription('members')}:pull"
        pulled = await rest.ok("POST", path, content=whole, headers={"Content-Encoding": "gzip"})
        assert [m["message"]["data"] for m in pulled["receivedMessages"]] == ["eA==", "eQ=="]


async def test_a_body_that_says_it_is_too_long_is_refused_before_it_comes(broker: BrokerProcess) -> None:
    async with calling(broker.url) as caller:
        path = "/v1/projects/project/topics/topic:publish"
        caller.send(request("POST", path, f"Content-Length: {MAX_PAYLOAD_BYTES + 1}"), b"{")
        refusal = await caller.answer()
        assert refusal.status == 400
        assert b"exceeds the limit" in refusal.body


@pytest.mark.parametrize("values", [b"{}," * 3_000_000 + b"{}", b"1.5," * 2_400_000 + b"1.5", b'"",' * 3_000_000])
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("topics/topic:publish", "messages"),
        ("topics/topic:publish", "topic"),
        ("subscriptions/sub:seek", "snapshot"),
    ],
)
async def test_a_body_of_far_too_many_values_is_refused_before_they_are_made(
    broker: BrokerProcess, path: str, field: str, values: bytes
) -> None:
    """They took 480 MB."""
    async with good_client(broker) as good:
        async with Memory(broker) as memory:
            content = b'{"%s":[%s]}' % (field.encode(), values)
            code, text = await good.rest.error("POST", f"{good.rest.project}/{path}", content=content)
        assert code == "INVALID_ARGUMENT"
        most = 500_000 if path.endswith(":publish") else 20_000
        assert f"more than {most} strings, brackets and commas" in text or "more than 4000 JSON objects" in text
        assert memory.grown < 100 * MEGABYTE


async def test_a_publish_of_a_few_thousand_messages_is_told_how_many_there_may_be(broker: BrokerProcess) -> None:
    async with good_client(broker) as good:
        for count, said in ((1_500, "You passed 1501 in the request"), (150_000, "more than 1000 messages")):
            content = b'{"messages":[' + b"{}," * count + b"{}]}"
            code, text = await good.rest.error("POST", f"{good.rest.topic()}:publish", content=content)
            assert (code, said in text) == ("INVALID_ARGUMENT", True), text


async def test_a_publish_with_many_braces_in_its_attributes_is_stored(broker: BrokerProcess) -> None:
    braces = '{["\\"'
    attributes = {f"a{index}": braces * 200 for index in range(5)}
    async with good_client(broker) as good:
        rest = good.rest
        await rest.create_topic("braces")
        await rest.create_subscription("braces", topic="braces")
        await rest.publish(*[{"attributes": attributes}] * 120, topic="braces")
        received = await rest.drain("braces")
        assert [m["message"]["attributes"] for m in received] == [attributes] * 120


async def test_callers_that_leave_within_their_bodies_give_their_memory_back(broker: BrokerProcess) -> None:
    async def leave(topic: str) -> None:
        async with calling(broker.url) as caller:
            caller.send(request("POST", f"/v1/{topic}:publish", "Content-Length: 9000000"), b" " * 1_000_000)
            await asyncio.sleep(0.05)

    async with good_client(broker) as good:
        for _ in range(4):
            await asyncio.gather(*[leave(good.rest.topic()) for _ in range(40)])

        async def has_capacity() -> bool:  # three quarters of all room
            answer = await good.rest.call("POST", f"{good.rest.topic()}:publish", content=b" " * 10_000_000)
            return answer.status_code == 400

        await eventually(has_capacity)


async def test_a_caller_that_has_closed_its_side_is_gone(broker: BrokerProcess) -> None:
    """As one that has closed both: nobody can know.  A pull that waits for it must not be handed messages."""
    async with good_client(broker) as good:
        await good.rest.create_topic("quiet")
        await good.rest.create_subscription("waiting", topic="quiet")
        pull = request("POST", f"/v1/{good.rest.subscription('waiting')}:pull", body=b'{"maxMessages":10}')
        for sent in (b"", pull[:20], pull[:-5], pull, pull * 3):
            async with calling(broker.url) as caller:
                caller.send(sent)
                caller.writer.write_eof()
                assert await caller.rest() == b""
        await good.rest.publish("for another", topic="quiet")
        assert len(await good.rest.pull("waiting", wait=True)) == 1


async def test_a_request_whose_caller_left_before_its_body_was_read_is_not_served() -> None:
    """It was served as one without a body."""
    memory = RequestMemory(1_000_000)
    head = Head("PUT", b"/v1/projects/p/topics/topic", b"", "1.1", [], 2, keep_alive=True, expects_continue=False)
    exchange = Exchange(cast(Any, None), head)
    exchange.leave()
    with pytest.raises(InvalidArgument):
        await BodyReader(memory, LoopTurns()).read(
            exchange, admission_of(Size.REQUEST, memory), "projects/p/topics/t"
        )
    assert memory.held == 0
