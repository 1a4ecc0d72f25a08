"""One POST to an endpoint: everything that can come of it."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from math import inf
from urllib.parse import quote

import pytest

from broker.core.pushing.client import http_client
from broker.core.pushing.client.address_policy import parse_address_policy
from broker.core.pushing.client.http_client import (
    MAX_BODY,
    MAX_RETRY_AFTER,
    SUCCESS,
    Answer,
    Denied,
    PushClient,
    Unreachable,
)
from broker.core.pushing.request.envelope import PushRequest
from tests.fixtures.broker import eventually
from tests.fixtures.push_sink import PushSink

DENY = parse_address_policy("deny", "")


@pytest.fixture
async def client() -> AsyncIterator[PushClient]:
    client = PushClient()
    yield client
    await client.close()


@pytest.fixture
def mine() -> str:
    return uuid.uuid4().hex


def to(url: str, body: bytes = b"{}", *, want_body: bool = False, **headers: str) -> PushRequest:
    return PushRequest(url, body, headers, want_body)


async def answer(client: PushClient, request: PushRequest) -> Answer:
    came = await client.post(request)
    assert isinstance(came, Answer), came
    return came


async def reason(client: PushClient, request: PushRequest) -> str:
    came = await client.post(request)
    assert isinstance(came, Unreachable), came
    assert "\n" not in came.reason
    return came.reason


@pytest.mark.parametrize(
    "status", [200, 201, 202, 203, 204, 205, 206, 299, 300, 304, 400, 401, 404, 410, 429, 500, 503, 599]
)
async def test_the_answer_is_the_status_that_came(
    push_sink: PushSink, client: PushClient, mine: str, status: int
) -> None:
    came = await answer(client, to(f"{push_sink.url}/status/{status}/{mine}"))
    assert came == Answer(status, b"", None)
    assert (status in SUCCESS) == (status in (200, 201, 202, 204))


async def test_102_is_an_answer_and_a_success(push_sink: PushSink, client: PushClient, mine: str) -> None:
    for path in (f"/status/102/{mine}", f"/then/102/500/{mine}", f"/status/200/{mine}"):
        assert (await answer(client, to(push_sink.url + path))).status in SUCCESS


@pytest.mark.parametrize("interim", [100, 103])
async def test_other_interim_answers_are_passed_over(
    push_sink: PushSink, client: PushClient, mine: str, interim: int
) -> None:
    for _ in range(2):
        assert (await answer(client, to(f"{push_sink.url}/then/{interim}/503/{mine}"))).status == 503
    first, second = await push_sink.requests(f"/then/{interim}/503/{mine}")
    assert first.connection == second.connection


async def test_switching_protocols_is_a_failure(push_sink: PushSink, client: PushClient, mine: str) -> None:
    assert (await answer(client, to(f"{push_sink.url}/status/101/{mine}"))).status not in SUCCESS


async def test_the_request_arrives_as_it_was_made(push_sink: PushSink, client: PushClient, mine: str) -> None:
    url = f"{push_sink.localhost_url}/status/200/{mine}?a=b c&d=%20é#fragment"
    await answer(client, to(url, b"\x00\xff", **{"Content-Type": "a/b", "X-One": "1"}))
    [request] = await push_sink.requests(f"/status/200/{mine}")
    assert request.target == f"/status/200/{mine}?a=b%20c&d=%20%C3%A9"
    assert request.body == b"\x00\xff"
    assert request.headers == {
        "host": push_sink.localhost_url.removeprefix("http://"),
        "content-type": "a/b",
        "x-one": "1",
        "content-length": "2",
    }


async def test_a_large_body_arrives_whole(push_sink: PushSink, client: PushClient, mine: str) -> None:
    body = b"x" * 5_000_000
    await answer(client, to(f"{push_sink.url}/status/200/{mine}", body))
    [request] = await push_sink.requests(f"/status/200/{mine}")
    assert request.body == body


async def test_a_user_and_password_of_the_url_are_basic_authorization_unless_there_is_a_token(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    url = f"{push_sink.url}/status/200/{mine}".replace("http://", "http://us%C3%A9r:p%40ss@")
    await answer(client, to(url))
    await answer(client, to(url, Authorization="Bearer token"))
    basic, bearer = await push_sink.requests(f"/status/200/{mine}")
    assert basic.headers["authorization"] == "Basic dXPDqXI6cEBzcw=="
    assert bearer.headers["authorization"] == "Bearer token"


async def test_requests_one_after_the_other_share_a_connection(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    for status in (200, 404, 500, 204):
        await push_sink.program(f"/{mine}", f"/status/{status}")
        await answer(client, to(f"{push_sink.url}/{mine}"))
    assert len({request.connection for request in await push_sink.requests(f"/{mine}")}) == 1


async def test_requests_at_the_same_time_do_not_wait_for_each_other(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    posts = [client.post(to(f"{push_sink.url}/gate/{mine}/x")) for _ in range(100)]
    sending = asyncio.gather(*posts)
    await push_sink.wait_for(f"/gate/{mine}/x", 100)
    await push_sink.open_gate(mine)
    assert await sending == [Answer(200, b"", None)] * 100


async def test_the_body_of_an_answer_is_given(push_sink: PushSink, client: PushClient, mine: str) -> None:
    came = await answer(client, to(f"{push_sink.url}/body/418/{quote('why: no', safe='')}/{mine}"))
    assert came == Answer(418, b"why: no", None)


async def test_a_hanging_endpoint_is_waited_for_until_the_caller_gives_up(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    post = asyncio.ensure_future(client.post(to(f"{push_sink.url}/hang/{mine}")))
    await push_sink.wait_for(f"/hang/{mine}", 1)
    assert not post.done()
    post.cancel()
    with pytest.raises(asyncio.CancelledError):
        await post
    [request] = await push_sink.wait_for(f"/hang/{mine}", 1, ended=True)  # its connection was closed
    assert request.status is None


async def test_slow_headers_are_waited_for_until_the_caller_gives_up(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.post(to(f"{push_sink.url}/slow-headers/{mine}"))
    [request] = await push_sink.wait_for(f"/slow-headers/{mine}", 1, ended=True)
    assert request.status is None


async def test_a_slow_body_does_not_hold_the_status_back(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    came = await answer(client, to(f"{push_sink.url}/slow-body/{mine}"))  # whose body takes half a day
    assert came.status == 200
    assert set(came.body) <= set(b"x")
    await push_sink.wait_for(f"/slow-body/{mine}", 1, ended=True)


async def test_a_body_that_is_wanted_is_waited_for(push_sink: PushSink, client: PushClient, mine: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await client.post(to(f"{push_sink.url}/slow-body/{mine}", want_body=True))


async def test_a_body_without_end_is_cut_and_its_connection_closed(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    came = await answer(client, to(f"{push_sink.url}/huge-body/{mine}", want_body=True))
    assert came == Answer(200, b"x" * MAX_BODY, None)
    await push_sink.wait_for(f"/huge-body/{mine}", 1, ended=True)


async def test_nothing_is_asked_to_be_compressed_and_what_is_stays_so(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    came = await answer(client, to(f"{push_sink.url}/bomb/{mine}", want_body=True))
    assert came.status == 200
    assert came.body.startswith(b"\x1f\x8b")
    assert len(came.body) <= MAX_BODY
    [request] = await push_sink.requests(f"/bomb/{mine}")
    assert "accept-encoding" not in request.headers


async def test_a_body_that_is_cut_off_leaves_the_status(push_sink: PushSink, client: PushClient, mine: str) -> None:
    came = await answer(client, to(f"{push_sink.url}/cut-body/{mine}", want_body=True))
    assert came == Answer(200, b"half", None)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_not_followed(
    push_sink: PushSink, client: PushClient, mine: str, status: int
) -> None:
    before = len(await push_sink.requests("/status/200/redirected"))
    assert (await answer(client, to(f"{push_sink.url}/redirect/{status}/{mine}"))).status == status
    assert len(await push_sink.requests("/status/200/redirected")) == before


async def test_cookies_are_not_kept(push_sink: PushSink, client: PushClient, mine: str) -> None:
    for _ in range(2):
        await answer(client, to(f"{push_sink.url}/cookie/{mine}"))
    assert all("cookie" not in request.headers for request in await push_sink.requests(f"/cookie/{mine}"))


async def test_a_proxy_of_the_environment_is_not_used(
    push_sink: PushSink, client: PushClient, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await answer(client, to(f"{push_sink.url}/status/200/{mine}"))).status == 200


async def test_a_reset_is_no_answer(push_sink: PushSink, client: PushClient, mine: str) -> None:
    assert await reason(client, to(f"{push_sink.url}/reset/{mine}")) == "connection reset"
    assert len(await push_sink.requests(f"/reset/{mine}")) == 1


async def test_a_closed_connection_is_no_answer(push_sink: PushSink, client: PushClient, mine: str) -> None:
    said = await reason(client, to(f"{push_sink.url}/close/{mine}"))
    assert said == "the connection was closed before an answer"
    assert len(await push_sink.requests(f"/close/{mine}")) == 1


async def test_what_is_not_http_is_no_answer(push_sink: PushSink, client: PushClient, mine: str) -> None:
    assert "not HTTP" in await reason(client, to(f"{push_sink.url}/garbage/{mine}"))


async def test_headers_without_end_are_no_answer(push_sink: PushSink, client: PushClient, mine: str) -> None:
    assert "headers have more than" in await reason(client, to(f"{push_sink.url}/huge-headers/{mine}"))
    await push_sink.wait_for(f"/huge-headers/{mine}", 1, ended=True)


async def test_a_trailer_without_end_is_cut_off(client: PushClient) -> None:
    """Of an answer whose body is waited for: nothing else would end it before the ack deadline."""
    cut_off = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nOK\r\n0\r\nX-Trailer: ")
        with suppress(ConnectionError):
            while True:
                writer.write(b"a" * 65_536)
                await writer.drain()
        cut_off.set()
        writer.close()

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await answer(client, to(f"http://127.0.0.1:{port}/", want_body=True)) == Answer(200, b"OK", None)
        await cut_off.wait()


async def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    await push_sink.program(f"/{mine}", "/extra", "/extra", "/status/500")
    for status in (200, 200, 500):
        assert (await answer(client, to(f"{push_sink.url}/{mine}"))).status == status
    assert len({request.connection for request in await push_sink.requests(f"/{mine}")}) == 3


async def test_a_connection_that_nobody_needs_is_closed(
    push_sink: PushSink, client: PushClient, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_IDLE_SECONDS", 0.1)
    await answer(client, to(f"{push_sink.url}/status/200/{mine}"))
    assert client._idle
    await eventually(lambda: not client._idle)
    await answer(client, to(f"{push_sink.url}/status/200/{mine}"))
    first, second = await push_sink.requests(f"/status/200/{mine}")
    assert first.connection != second.connection


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_kept_connection_that_the_endpoint_closes_is_no_failure(
    push_sink: PushSink, client: PushClient, mine: str, how: str
) -> None:
    path = f"/{how}-on-reuse/{mine}"
    for _ in range(3):
        assert (await answer(client, to(push_sink.url + path))).status == 200
    connections = [request.connection for request in await push_sink.requests(path)]
    assert len(connections) == 5  # the second and third came twice: on the old connection, and on a new one
    assert len(set(connections)) == 3


async def test_a_kept_connection_that_ends_after_a_while_is_a_failure(
    push_sink: PushSink, client: PushClient, mine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint had the request; that it gave up must be seen, and count."""
    monkeypatch.setattr(http_client, "_STALE_SECONDS", -1.0)  # any moment is a while
    await push_sink.program(f"/{mine}", "/status/200", "/close", "/status/200")
    await answer(client, to(f"{push_sink.url}/{mine}"))
    await reason(client, to(f"{push_sink.url}/{mine}"))
    assert len(await push_sink.requests(f"/{mine}")) == 2


async def test_a_new_connection_that_closes_is_not_tried_again(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    await push_sink.program(f"/{mine}", "/status/200", "/close", "/close", "/status/200")
    await answer(client, to(f"{push_sink.url}/{mine}"))
    await reason(client, to(f"{push_sink.url}/{mine}"))
    assert len(await push_sink.requests(f"/{mine}")) == 3


async def test_connection_refused(client: PushClient) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        assert await reason(client, to(url)) == "connection refused"


async def test_a_name_that_does_not_exist(client: PushClient) -> None:
    assert "no-such-host.invalid cannot be resolved" in await reason(client, to("http://no-such-host.invalid/"))


@pytest.mark.parametrize(
    "url", ["", "nonsense", "ftp://127.0.0.1/", "http://", "http://a:b:c/", "http://a:99999/", "http://[::1/", "http://%/",
            "http://" + "a" * 300 + "/", "http://a..b/"]
)  # fmt: skip
async def test_a_url_that_makes_no_sense_is_no_crash(client: PushClient, url: str) -> None:
    assert await reason(client, to(url))


async def test_a_header_with_a_line_break_is_not_sent(push_sink: PushSink, client: PushClient, mine: str) -> None:
    for value in ("a\r\nX-Evil: 1", "a\nb", "ä", "\ud800"):
        assert await reason(client, to(f"{push_sink.url}/status/200/{mine}", **{"X-A": value}))
    assert await push_sink.requests(f"/status/200/{mine}") == []


async def test_an_unknown_ca_is_refused_and_a_known_one_is_not(push_sink: PushSink, mine: str) -> None:
    async with _client() as client:
        said = await reason(client, to(f"{push_sink.tls_url}/status/200/{mine}"))
        assert said == "TLS: unable to get local issuer certificate"
    async with _client(ca_file=push_sink.ca_file) as client:
        for _ in range(2):
            assert (await answer(client, to(f"{push_sink.tls_url}/status/200/{mine}"))).status == 200
    first, second = await push_sink.requests(f"/status/200/{mine}")
    assert first.connection == second.connection


async def test_a_certificate_for_another_host_is_refused(push_sink: PushSink, mine: str) -> None:
    async with _client(ca_file=push_sink.ca_file) as client:
        said = await reason(client, to(f"{push_sink.wrong_host_url}/status/200/{mine}"))
        assert said.startswith("TLS: IP address mismatch")


async def test_https_to_an_endpoint_that_speaks_http_is_no_answer(push_sink: PushSink, client: PushClient) -> None:
    url = push_sink.localhost_url.replace("http://", "https://")
    assert (await reason(client, to(f"{url}/status/200/x"))).startswith("TLS: ")


async def test_a_name_of_a_private_address_is_refused_under_deny(push_sink: PushSink, mine: str) -> None:
    url = f"{push_sink.localhost_url}/status/200/{mine}"
    async with _client(policy=DENY) as client:
        why = "the address of localhost is loopback; the address policy of this broker denies it"
        assert await client.post(to(url)) == Denied(why), "the address itself is not told"
        assert await client.denial(url) == why
    assert await push_sink.requests(f"/status/200/{mine}") == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "10.0.0.1", "0.0.0.0", "127.1", "2130706433"]
)
async def test_a_literal_private_address_is_refused_under_deny(push_sink: PushSink, mine: str, host: str) -> None:
    async with _client(policy=DENY) as client:
        came = await client.post(to(f"{push_sink.url.replace('127.0.0.1', host)}/status/200/{mine}"))
        assert isinstance(came, Denied) or (isinstance(came, Unreachable) and "cannot be resolved" in came.reason)
    assert await push_sink.requests(f"/status/200/{mine}") == []


async def test_an_allowed_network_is_reached_under_deny(push_sink: PushSink, mine: str) -> None:
    async with _client(policy=parse_address_policy("deny", "127.0.0.0/8")) as client:
        for url in (push_sink.url, push_sink.localhost_url):
            assert (await answer(client, to(f"{url}/status/200/{mine}"))).status == 200
            assert await client.denial(url) is None


async def test_of_a_name_with_several_addresses_those_are_used_that_are_allowed(
    push_sink: PushSink, mine: str
) -> None:
    async with _client(policy=parse_address_policy("deny", "127.0.0.0/8")) as client:
        client._resolver._known["several.example"] = (inf, ["10.0.0.1", "127.0.0.1"])
        client._resolver._known["inner.example"] = (inf, ["10.0.0.1", "::1"])
        several = push_sink.url.replace("127.0.0.1", "several.example")
        assert (await answer(client, to(f"{several}/status/200/{mine}"))).status == 200
        assert await client.denial(several) is None
        assert isinstance(await client.post(to("http://inner.example/")), Denied)
        with pytest.raises(OSError, match="cannot be resolved"):
            await client.denial(f"http://{mine}.invalid/")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), ("0", 0), ("86400", MAX_RETRY_AFTER), ("9" * 500, MAX_RETRY_AFTER), ("-1", None), ("1.5", None),
     ("soon", None), ("", None), ("٣", None), ("Sun, 06 Nov 1994 08:49:37 GMT", None), ("Mon, 99 Foo 2030", None)],
)  # fmt: skip
async def test_retry_after_in_seconds(
    push_sink: PushSink, client: PushClient, mine: str, value: str, seconds: float | None
) -> None:
    came = await answer(client, to(f"{push_sink.url}/retry-after/503/{quote(value, safe='')}/{mine}"))
    assert came == Answer(503, b"", seconds)


async def test_retry_after_as_a_date(push_sink: PushSink, client: PushClient, mine: str) -> None:
    for after, least, most in ((100, 90, 100), (86_400, MAX_RETRY_AFTER, MAX_RETRY_AFTER)):
        value = format_datetime(datetime.now(UTC) + timedelta(seconds=after), usegmt=True)
        came = await answer(client, to(f"{push_sink.url}/retry-after/429/{quote(value, safe='')}/{mine}"))
        assert came.retry_after is not None
        assert least <= came.retry_after <= most


async def test_fifty_dead_names_and_fifty_that_hang_hold_nobody_up(
    push_sink: PushSink, client: PushClient, mine: str
) -> None:
    bad = [client.post(to(f"http://{mine}-{n}.invalid/")) for n in range(50)]
    bad += [client.post(to(f"{push_sink.url}/hang/{mine}")) for _ in range(50)]
    tasks = [asyncio.ensure_future(post) for post in bad]
    await push_sink.wait_for(f"/hang/{mine}", 50)
    good = await asyncio.gather(*(client.post(to(f"{push_sink.url}/status/200/{mine}")) for _ in range(50)))
    assert good == [Answer(200, b"", None)] * 50
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_closing_ends_what_is_under_way(push_sink: PushSink, mine: str) -> None:
    client = PushClient()
    post = asyncio.ensure_future(client.post(to(f"{push_sink.url}/hang/{mine}")))
    await push_sink.wait_for(f"/hang/{mine}", 1)
    await client.close()
    assert isinstance(await post, Unreachable)


@asynccontextmanager
async def _client(**options: object) -> AsyncIterator[PushClient]:
    client = PushClient(**options)  # type: ignore[arg-type]
    try:
        yield client
    finally:
        await client.close()
