"""The sink that tests push to does what it says."""

import asyncio
import time
import uuid

import httpx
import pytest

from tests.fixtures.broker import NO_TLS
from tests.fixtures.push_sink import PushSink


@pytest.fixture
def mine() -> str:
    return uuid.uuid4().hex


async def test_a_request_is_remembered_as_it_came(push_sink: PushSink, mine: str) -> None:
    async with httpx.AsyncClient(verify=NO_TLS) as client:
        answer = await client.post(f"{push_sink.url}/status/418/{mine}?a=b", content=b"body", headers={"X-A": "b"})
    assert answer.status_code == 418
    [request] = await push_sink.wait_for(f"/status/418/{mine}", 1, ended=True)
    assert request.target == f"/status/418/{mine}?a=b"
    assert request.body == b"body"
    assert request.headers["x-a"] == "b"
    assert request.status == 418
    assert request.ended is not None
    assert request.time <= request.ended <= time.monotonic()


async def test_a_path_can_be_programmed(push_sink: PushSink, mine: str) -> None:
    await push_sink.program(f"/{mine}", "/status/500", "/body/200/%7B%7D", "/status/204")
    async with httpx.AsyncClient(base_url=push_sink.url, verify=NO_TLS) as client:
        answers = [await client.post(f"/{mine}") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [500, 200, 204, 204]
    assert answers[1].text == "{}"


async def test_a_gate_holds_requests_until_it_is_opened(push_sink: PushSink, mine: str) -> None:
    async with httpx.AsyncClient(base_url=push_sink.url, verify=NO_TLS) as client:
        waiting = asyncio.gather(*(client.post(f"/gate/{mine}/x") for _ in range(3)))
        await push_sink.wait_for(f"/gate/{mine}/x", 3)
        assert not waiting.done()
        await push_sink.open_gate(mine)
        assert [answer.status_code for answer in await waiting] == [200] * 3
    assert (await push_sink.count(f"/gate/{mine}"))["most_at_once"] == 3


async def test_https_is_verified_by_the_ca_file(push_sink: PushSink, mine: str) -> None:
    import ssl

    context = ssl.create_default_context(cafile=push_sink.ca_file)
    async with httpx.AsyncClient(verify=context) as client:
        assert (await client.post(f"{push_sink.tls_url}/fast/{mine}")).status_code == 200
        with pytest.raises(httpx.ConnectError):
            await client.post(f"{push_sink.wrong_host_url}/fast/{mine}")
    assert (await push_sink.count(f"/fast/{mine}"))["count"] == 1
