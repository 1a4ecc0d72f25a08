"""What is not HTTP/1.1 is refused and cut off, and can put no request of its own behind another's."""

import json

import pytest

from tests.fixtures.broker import BrokerProcess, Rest
from tests.limits.conftest import good_client
from tests.limits.raw import calling, request

HOST = b"Host: x\r\n"
LIST = b"GET /v1/projects/project/topics HTTP/1.1\r\n"
POST = b"POST /v1/projects/project/topics/absent:publish HTTP/1.1\r\nHost: x\r\n"
SMUGGLED = b"DELETE /v1/projects/project/topics/topic HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"

MALFORMED = {
    "an unknown method": (b"FETCH /v1/x HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a method in small letters": (b"get /healthz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "no method": (b" /healthz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "HTTP/0.9": (b"GET /healthz\r\n\r\n", 505),
    "HTTP/1.1 of another name": (b"GET /healthz ICY/1.1\r\n" + HOST + b"\r\n", 400),
    "HTTP/2.0 without its preface": (b"GET /healthz HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    "HTTP/9.9": (b"GET /healthz HTTP/9.9\r\n" + HOST + b"\r\n", 400),
    "a version without a number": (b"GET /healthz HTTP/x\r\n" + HOST + b"\r\n", 400),
    "the preface of HTTP/2, almost": (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 400),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /healthz HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
    "a NUL in the path": (b"GET /heal\0thz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a NUL in a header": (LIST + HOST + b"X: a\0b\r\n\r\n", 400),
    "a space in a header's name": (LIST + HOST + b"X y: z\r\n\r\n", 400),
    "a space before the colon": (LIST + HOST + b"X : z\r\n\r\n", 400),
    "a header without a colon": (LIST + HOST + b"nothing\r\n\r\n", 400),
    "a header that goes on in the next line": (LIST + HOST + b"X: y\r\n z\r\n\r\n", 400),
    "lines that end in LF alone": (b"GET /healthz HTTP/1.1\nHost: x\n\n", 400),
    "lines that end in CR alone": (b"GET /healthz HTTP/1.1\rHost: x\r\r", 400),
    "a tunnel": (b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n", 501),
    "a tunnel with a body": (
        b"CONNECT /v1/x HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
        501,
    ),
    "a URL that is none": (b"GET http:// HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a path that is no ASCII": (b"GET /\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "the first words of TLS": (bytes.fromhex("16030100f1010000ed0303") + bytes(range(230)), 400),
    "noise": (bytes(range(255, 127, -1)) * 40, 400),
    "a length that is no number": (POST + b"Content-Length: ten\r\n\r\n", 400),
    "a negative length": (POST + b"Content-Length: -1\r\n\r\n", 400),
    "a length with a sign": (POST + b"Content-Length: +2\r\n\r\n{}", 400),
    "a length beyond 64 bits": (POST + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
    "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}" + SMUGGLED, 400),
    "a list of lengths": (POST + b"Content-Length: 2, 60\r\n\r\n{}" + SMUGGLED, 400),
    "a length and chunks": (CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n" + SMUGGLED, 400),
    "chunks and a length": (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunks twice": (CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, 400),
    "another transfer coding": (POST + b"Transfer-Encoding: gzip\r\n\r\n" + SMUGGLED, 501),
    "two transfer codings": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, 501),
    "a transfer coding in disguise": (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED, 501),
    "a tab before the transfer coding": (POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + SMUGGLED, 400),
    "chunks in HTTP/1.0": (CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n0\r\n\r\n" + SMUGGLED, 400),
    "a chunk's size that is no number": (CHUNKED + b"\r\nzz\r\n{}\r\n0\r\n\r\n" + SMUGGLED, 400),
    "a chunk's size with a sign": (CHUNKED + b"\r\n+2\r\n{}\r\n0\r\n\r\n" + SMUGGLED, 400),
    "a chunk's size as 0x2": (CHUNKED + b"\r\n0x2\r\n{}\r\n0\r\n\r\n" + SMUGGLED, 400),
    "a chunk's size beyond 64 bits": (CHUNKED + b"\r\nfffffffffffffffff\r\n{}", 400),
    "a chunk longer than its size": (CHUNKED + b"\r\n1\r\n{}\r\n0\r\n\r\n" + SMUGGLED, 400),
    "a chunk's size that ends in LF alone": (CHUNKED + b"\r\n2\n{}\r\n0\r\n\r\n" + SMUGGLED, 400),
    "a chunk that ends in LF alone": (CHUNKED + b"\r\n2\r\n{}\n0\n\n" + SMUGGLED, 400),
    "chunks and another protocol": (
        CHUNKED + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
        501,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_is_malformed_gets_one_refusal_and_the_connection_is_closed(
    broker: BrokerProcess, name: str
) -> None:
    sent, status = MALFORMED[name]
    async with calling(broker.url) as caller:
        caller.send(sent)
        refusal = await caller.answer()
        assert refusal.status == status, refusal
        error = json.loads(refusal.body)["error"]
        assert error["code"] == status
        assert error["status"] == ("INVALID_ARGUMENT" if status == 400 else "UNIMPLEMENTED")
        assert await caller.rest() == b""


@pytest.mark.parametrize("name", MALFORMED)
async def test_it_makes_no_difference_where_the_bytes_are_parted(broker: BrokerProcess, name: str) -> None:
    sent, status = MALFORMED[name]
    async with calling(broker.url) as caller:
        for at in range(0, len(sent), 7):
            await caller.send_all(sent[at : at + 7])
        assert await caller.answers() in ([status], [])  # [] where the refusal was lost to what was sent after it


async def test_nothing_was_smuggled_and_good_clients_are_served(broker: BrokerProcess) -> None:
    async with good_client(broker) as good:
        rest = Rest(good.rest.client, "projects/project")
        await rest.create_topic()
        for sent, _ in MALFORMED.values():
            async with calling(broker.url) as caller:
                await caller.send_all(sent)
                await caller.rest()
        assert (await rest.call("GET", rest.topic())).status_code == 200


async def test_what_came_before_a_malformed_request_is_answered_first(broker: BrokerProcess) -> None:
    async with good_client(broker) as good:
        path = f"/v1/{good.rest.subscription('waiting')}:pull"
        await good.rest.create_topic("quiet")
        await good.rest.create_subscription("waiting", topic="quiet")
        async with calling(broker.url) as caller:
            pull = request("POST", path, body=b'{"maxMessages":1}')
            list_topics = request("GET", "/v1/projects/project/topics")
            caller.send(pull, list_topics, b"what is this?\r\n\r\n")
            await good.rest.publish("at last", topic="quiet")
            pulled = await caller.answer()
            assert (pulled.status, b"receivedMessages" in pulled.body) == (200, True)
            assert await caller.answers() == [200, 400]


async def test_a_malformed_body_is_refused_and_its_request_has_no_effect(broker: BrokerProcess) -> None:
    async with good_client(broker) as good, calling(broker.url) as caller:
        path = f"/v1/{good.rest.topic('made')}"
        caller.send(request("PUT", path, "Transfer-Encoding: chunked"), b"2\r\n{}\r\n")
        caller.send(b"no size\r\n\r\n")
        assert await caller.answers() == [400]
        assert (await good.rest.call("GET", good.rest.topic("made"))).status_code == 404


VALID = {
    "an absolute URL": (b"GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    "a question about the server": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "empty lines before a request": (b"\r\n\r\n\r\n" + request("GET", "/healthz"), 200),
    "an empty host": (b"GET /healthz HTTP/1.1\r\nHost:\r\n\r\n", 200),
    "a client that is asked to go on": (request("GET", "/healthz", "Expect: 100-continue"), 200),
    "other expectations": (request("GET", "/healthz", "Expect: miracles"), 200),
    "extensions and trailers of chunks": (
        request("POST", "/v1/projects/project/topics/absent:publish", "Transfer-Encoding: chunked")
        + b'2;a="b"\r\n{}\r\n0\r\nX-Trailer: y\r\n\r\n',
        404,
    ),
    "a wish for HTTP/2 that some proxy has half removed": (
        CHUNKED + b"Upgrade: h2c\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        404,
    ),
    "a wish for HTTP/2": (request("GET", "/healthz", "Connection: Upgrade", "Upgrade: h2c"), 200),
    "a wish for WebSockets": (
        request("GET", "/healthz", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: eA=="),
        200,
    ),
}


@pytest.mark.parametrize("name", VALID)
async def test_what_is_odd_but_valid_is_answered_and_the_connection_serves_on(
    broker: BrokerProcess, name: str
) -> None:
    sent, status = VALID[name]
    async with calling(broker.url) as caller:
        caller.send(sent)
        assert (await caller.answer()).status == status
        assert await caller.is_served()


@pytest.mark.parametrize("size", [2, 20_000])
@pytest.mark.parametrize("piece", [1_000_000, 300])
async def test_the_body_of_a_request_for_another_protocol_is_read(
    broker: BrokerProcess, size: int, piece: int
) -> None:
    """Java's HttpClient asks for h2c with its first request, whatever that is."""
    async with good_client(broker) as good, calling(broker.url) as caller:
        body = b"{" + b" " * (size - 2) + b"}"
        path = f"/v1/{good.rest.topic('made')}"
        sent = request("PUT", path, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", body=body)
        sent += request("GET", path)
        for at in range(0, len(sent), piece):
            await caller.send_all(sent[at : at + piece])
        assert (await caller.answer()).status == 200
        assert (await caller.answer()).status == 200
        assert await caller.is_served()
