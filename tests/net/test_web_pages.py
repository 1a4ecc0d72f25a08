"""A browser is not a caller: what pages may have their visitors' browsers do to a broker (E1)."""

import logging
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.net.http1.web_origins import is_private_name, is_same_origin, name_of
from broker.net.http1.web_pages import WebPages
from broker.observability.state_changes import StateChanges
from tests.limits.raw import Answer, calling
from tests.net.http1 import Served, serving

CONSOLE = "https://console.example.com"
ASKS = "Access-Control-Request-Method: POST"
SITE, ORIGIN = "Sec-Fetch-Site: cross-site", "Origin: https://evil.example"


def request(method: str, path: str, host: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.fixture
def pages() -> WebPages:
    return WebPages(hosts=["broker.example.com", "*.pubsub.example.com"], origins=[CONSOLE], states=StateChanges())


async def ask(served: Served, *requests: bytes) -> list[Answer]:
    async with calling(served.url) as caller:
        answers = []
        for each in requests:
            caller.send(each)
            answers.append(await caller.answer())
        return answers


async def statuses(pages: WebPages, requests: Sequence[bytes], *, scheme: str = "http") -> list[int]:
    async with serving(scheme=scheme) as served:
        served.server.pages = pages
        found = [answer.status for answer in await ask(served, *requests)]
        assert len(served.seen) == found.count(200)  # what is refused reaches no handler
        return found


# --- pages of another origin ---------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/json"])
@pytest.mark.parametrize(
    "says", [(ORIGIN,), (SITE,), (SITE, ORIGIN), ("Origin: null",), ("Sec-Fetch-Site: same-site",)]
)
async def test_what_a_page_of_another_origin_sends_is_refused_whatever_it_says_that_it_is(
    pages: WebPages, content_type: str, says: tuple[str, ...]
) -> None:
    reported = request("POST", "/v1/x", "localhost:8085", f"Content-Type: {content_type}", *says, body=b"{}")
    assert await statuses(pages, [reported, reported]) == [403, 403]  # the second time its head is known


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
async def test_a_program_may_declare_its_body_as_it_likes(pages: WebPages, content_type: str) -> None:
    """`curl -d` declares a form."""
    assert await statuses(
        pages, [request("POST", "/x", "localhost", f"Content-Type: {content_type}", body=b"{}")]
    ) == [200]


@pytest.mark.parametrize(
    "says",
    [
        ("Sec-Fetch-Site: same-origin", "Origin: http://localhost:8085"),
        ("Sec-Fetch-Site: none",),
        ("Origin: http://localhost:8085",),
    ],
)
async def test_a_page_that_came_from_the_broker_may_call_it(pages: WebPages, says: tuple[str, ...]) -> None:
    assert await statuses(pages, [request("POST", "/x", "localhost:8085", *says, body=b"{}")]) == [200]


async def test_a_link_on_a_page_of_another_origin_can_be_followed_and_nothing_can_be_posted_or_framed_so(
    pages: WebPages,
) -> None:
    follows = (SITE, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    framed = (SITE, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe")
    requests = [
        request("GET", "/x", "localhost", *follows),
        request("POST", "/x", "localhost", *follows, body=b"{}"),
        request("GET", "/x", "localhost", *framed),
        request("GET", "/x", "localhost", SITE, "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"),
    ]
    assert await statuses(pages, requests) == [200, 403, 403, 403]


async def test_the_refusal_says_which_setting_lets_the_page_and_the_log_says_it_once(
    pages: WebPages, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving() as served:
        served.server.pages = pages
        reported = [request("POST", f"/{number}", "localhost", ORIGIN, body=b"{}") for number in range(5)]
        for answer in await ask(served, *reported):
            assert answer.status == 403
            assert b'"status": "PERMISSION_DENIED"' in answer.body
            assert b"--cors-origins" in answer.body
            assert b"https://evil.example" in answer.body
    [line] = [record.getMessage() for record in caplog.records if record.name == "broker.state"]
    assert "evil.example" in line


# --- origins that the operator has named ---------------------------------------------------------------------


async def test_a_page_of_an_origin_that_is_allowed_may_call_and_read(pages: WebPages) -> None:
    async with serving() as served:
        served.server.pages = pages
        reported = request("POST", "/x", "localhost", f"Origin: {CONSOLE}", SITE, body=b"{}")
        for answer in await ask(served, reported, reported):
            assert answer.status == 200
            assert b"access-control-allow-origin: https://console.example.com\r\n" in answer.head
            assert b"vary: Origin\r\n" in answer.head


async def test_the_browser_is_told_that_such_a_page_may_call_and_that_others_may_not(pages: WebPages) -> None:
    async with serving() as served:
        served.server.pages = pages
        asked = (ASKS, "Access-Control-Request-Headers: authorization,content-type")
        may, may_not = await ask(
            served,
            request("OPTIONS", "/v1/x", "localhost", f"Origin: {CONSOLE}", *asked),
            request("OPTIONS", "/v1/x", "localhost", ORIGIN, *asked),
        )
        assert not served.seen
    assert may.status == 204
    assert may.head.count(b"access-control-allow-origin: ") == 1  # a browser takes no two
    assert b"access-control-allow-methods: GET, POST, PUT, PATCH, DELETE\r\n" in may.head
    assert b"access-control-allow-headers: authorization,content-type\r\n" in may.head
    assert may_not.status == 403
    assert b"access-control" not in may_not.head


async def test_two_origins_are_none_that_is_allowed(pages: WebPages) -> None:
    assert await statuses(
        pages, [request("POST", "/x", "localhost", ORIGIN, f"Origin: {CONSOLE}", body=b"{}")]
    ) == [403]


async def test_a_page_that_may_call_reads_what_the_application_answers_too(pages: WebPages) -> None:
    async def health(scope: object, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"well"})  # type: ignore[operator]

    async with serving(health) as served:
        served.server.pages = pages
        [answer] = await ask(served, request("GET", "/app/healthz", "localhost", f"Origin: {CONSOLE}"))
        assert b"access-control-allow-origin: https://console.example.com\r\n" in answer.head
        [refused] = await ask(served, request("GET", "/app/healthz", "localhost", ORIGIN))
        assert refused.status == 403


# --- names ---------------------------------------------------------------------------------------------------

OURS = [
    "127.0.0.1:8085",
    "10.1.2.3",
    "[::1]:8085",
    "[fd00::1]",
    "localhost",
    "LocalHost.:8085",
    "app.localhost",
    "broker",
    "broker:8085",
    "host.docker.internal:8085",
    "broker.local",
    "broker.namespace.svc",
    "broker.namespace.svc.cluster.local:8085",
    "broker.example.com",
    "Broker.Example.com.:443",
    "a.b.pubsub.example.com",
    "",
]
OTHERS = [
    "evil.example",
    "evil.example:8085",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "localhost.evil.example.",
    "pubsub.example.com",
    "xpubsub.example.com",
    "sub.broker.example.com",
    "evil.local.example",
    "999.1.1.1",
]


@pytest.mark.parametrize("host", OURS)
async def test_addresses_and_names_that_nobody_else_can_own_and_those_that_are_allowed_are_ours(
    pages: WebPages, host: str
) -> None:
    assert await statuses(pages, [request("GET", "/x", host)]) == [200]


@pytest.mark.parametrize("host", OTHERS)
async def test_a_name_of_somebody_elses_is_refused_so_that_it_cannot_be_pointed_at_the_broker(
    pages: WebPages, host: str
) -> None:
    """To the browser such a page is of the broker's own origin (DNS rebinding)."""
    rebound = request("POST", "/x", host, f"Origin: http://{host}", "Sec-Fetch-Site: same-origin", body=b"{}")
    assert await statuses(pages, [rebound, request("GET", "/x", host)]) == [403, 403]


async def test_over_tls_any_name_is_taken_for_its_certificate_was_and_pages_are_not(pages: WebPages) -> None:
    requests = [
        request("GET", "/x", "anything.example"),
        request("POST", "/x", "anything.example", ORIGIN, body=b"{}"),
    ]
    assert await statuses(pages, requests, scheme="https") == [200, 403]


async def test_http_1_0_needs_no_host() -> None:
    async with serving() as served, calling(served.url) as caller:
        caller.send(b"GET /x HTTP/1.0\r\n\r\n")
        assert (await caller.answer()).status == 200


async def test_a_target_with_a_host_does_not_make_up_for_the_header(pages: WebPages) -> None:
    assert await statuses(pages, [request("GET", "http://localhost/x", "evil.example")]) == [403]


async def test_requests_behind_a_refused_one_are_answered_and_its_body_is_none_of_them(pages: WebPages) -> None:
    async with serving() as served, calling(served.url) as caller:
        served.server.pages = pages
        hidden = request("POST", "/hidden", "localhost", body=b"{}")
        caller.send(request("POST", "/x", "localhost", ORIGIN, body=hidden), request("GET", "/after", "localhost"))
        assert [(await caller.answer()).status for _ in range(2)] == [403, 200]
        assert [exchange.head.path for exchange in served.seen] == [b"/after"]


@given(st.from_regex(r"[a-z0-9-]{1,10}(\.[a-z0-9-]{1,10}){1,3}", fullmatch=True))
@example("1.2.3.4.5")
def test_a_public_name_is_private_only_by_its_end_or_as_an_address(name: str) -> None:
    ends = name.rpartition(".")[2] in ("localhost", "internal", "local", "svc")
    parts = name.split(".")
    address = len(parts) == 4 and all(
        part.isdigit() and str(int(part)) == part and int(part) < 256 for part in parts
    )
    assert is_private_name(name_of(f"{name}:80")) == (ends or address)


@pytest.mark.parametrize(
    ("origin", "authority", "same"),
    [
        ("http://localhost:8085", "LOCALHOST:8085", True),
        ("http://localhost", "localhost:80", True),
        ("https://broker.example.com:443", "broker.example.com", True),
        ("http://localhost:8086", "localhost:8085", False),
        ("http://localhost:8085.evil.example", "localhost:8085", False),
        ("null", "null", False),
        ("file://", "", False),
        ("chrome-extension://localhost", "localhost", False),
    ],
)
def test_an_origin_is_the_same_if_host_and_port_are(origin: str, authority: str, *, same: bool) -> None:
    assert is_same_origin(origin, authority) is same
