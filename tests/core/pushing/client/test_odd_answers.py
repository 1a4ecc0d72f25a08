"""An endpoint's answer counts exactly if RFC 9112 accepts it, whatever the fast parser thinks (decision 0072)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.pushing.client.http_client import Answer, Outcome, PushClient, Unreachable
from broker.core.pushing.request.envelope import PushRequest

OK = b"HTTP/1.1 200 OK\r\n"

# What an endpoint sends, the status and the body of it, and whether a second request uses its connection.
ACCEPTED: list[tuple[str, bytes, int, bytes, bool]] = [
    ("as usual", OK + b"Content-Length: 2\r\n\r\nok", 200, b"ok", True),
    ("two equal lengths", OK + b"Content-Length: 2\r\ncontent-length: 2\r\n\r\nok", 200, b"ok", False),
    ("equal lengths in a list", OK + b"Content-Length: 2, 2\r\n\r\nok", 200, b"ok", False),
    (
        "a length, and chunked",
        OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        200,
        b"ok",
        False,
    ),
    (
        "chunked, and a length",
        OK + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        200,
        b"ok",
        False,
    ),
    ("lines that end without CR", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 200, b"ok", False),
    ("some lines without CR", OK + b"Content-Length: 2\n\r\nok", 200, b"ok", False),
    ("a folded header", OK + b"X-A: a\r\n b\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    ("a minor version that there is not", b"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    ("no reason", b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    ("no reason and no space", b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    ("a reason in UTF-8", b"HTTP/1.1 200 \xc3\xa9\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    ("no header", b"HTTP/1.1 200 OK\r\n\r\nok", 200, b"ok", False),
    ("an empty header", OK + b"X-A:\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    ("a length with zeros", OK + b"Content-Length: 002\r\n\r\nok", 200, b"ok", True),
    ("another coding", OK + b"Transfer-Encoding: gzip\r\n\r\nok", 200, b"ok", False),
    (
        "a failure with two equal lengths",
        b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        503,
        b"",
        False,
    ),
    (
        "an interim answer, and two equal lengths",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        False,
    ),
    ("102 with a folded header", b"HTTP/1.1 102 Processing\r\nX-A: a\r\n b\r\n\r\n", 102, b"", False),
    (
        "no body, and lengths that are equal",
        b"HTTP/1.1 204 No\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        204,
        b"",
        False,
    ),
]
REFUSED = {
    "lengths that differ": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "a list of lengths that differ": OK + b"Content-Length: 2, 3\r\n\r\nok",
    "a length that is no number": OK + b"Content-Length: x\r\n\r\nok",
    "a negative length": OK + b"Content-Length: -1\r\n\r\nok",
    "a length with a sign": OK + b"Content-Length: +2\r\n\r\nok",
    "an empty length": OK + b"Content-Length: \r\n\r\nok",
    "a line without a colon": OK + b"X-A\r\nContent-Length: 0\r\n\r\n",
    "a space in a name": OK + b"X A: a\r\nContent-Length: 0\r\n\r\n",
    "a name beyond ASCII": OK + b"X-\xc3\xa9: a\r\nContent-Length: 0\r\n\r\n",
    "a zero byte": OK + b"X-A: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "two spaces before the status": b"HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "a version without its minor part": b"HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n",
}


class Endpoint:
    """Sends its answers one after the other, each in pieces, and closes a connection after one without a length."""

    def __init__(self, answers: Sequence[bytes], pieces: int) -> None:
        self._answers = iter(answers)
        self._pieces = pieces
        self.requests: list[int] = []  # the connection of each
        self._serving: list[asyncio.Task[None]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.append(task)
        number = len(self._serving)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"{}")
                self.requests.append(number)
                answer = next(self._answers)
                size = max(1, len(answer) // self._pieces)
                for start in range(0, len(answer), size):
                    writer.write(answer[start : start + size])
                    await writer.drain()
                    await asyncio.sleep(0)
                if b"ength" not in answer and b"chunked" not in answer:
                    break
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def end(self) -> None:
        """Wait until all connections are closed."""
        await asyncio.gather(*self._serving)


Post = Callable[[], Awaitable[Outcome]]


@asynccontextmanager
async def _endpoint(answers: Sequence[bytes], pieces: int = 1) -> AsyncIterator[tuple[Endpoint, Post]]:
    endpoint, client = Endpoint(answers, pieces), PushClient()
    async with await asyncio.start_server(endpoint.serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        yield endpoint, lambda: client.post(PushRequest(url, b"{}", {}, want_body=True))
        await client.close()
        await endpoint.end()


@pytest.mark.parametrize("pieces", [1, 3, 1_000])
@pytest.mark.parametrize(
    ("raw", "status", "body", "kept"), [case[1:] for case in ACCEPTED], ids=[case[0] for case in ACCEPTED]
)
async def test_an_answer_that_http_accepts_counts_and_its_connection_is_closed_if_it_is_odd(
    raw: bytes, status: int, body: bytes, kept: bool, pieces: int
) -> None:
    async with _endpoint([raw, raw], pieces) as (endpoint, post):
        for _ in range(2):
            assert await post() == Answer(status, body, None)
        assert endpoint.requests == ([1, 1] if kept else [1, 2])


@pytest.mark.parametrize("pieces", [1, 1_000])
@pytest.mark.parametrize("raw", REFUSED.values(), ids=list(REFUSED))
async def test_an_answer_that_http_refuses_is_a_failure_that_says_so(raw: bytes, pieces: int) -> None:
    async with _endpoint([raw], pieces) as (_, post):
        came = await post()
        assert isinstance(came, Unreachable)
        assert came.reason.startswith("the answer is not valid HTTP/1.1: ")


async def test_when_to_try_again_is_read_from_an_odd_answer_too() -> None:
    raw = b"HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n"
    async with _endpoint([raw]) as (_, post):
        assert await post() == Answer(429, b"", 7.0)


_LINES = st.sampled_from([b"\r\n", b"\r\n", b"\n"])
_LENGTHS = [b"2", b"2, 2", b"2,2", b"2, 3", b"x", b"-2", b""]
_EQUAL = _LENGTHS[:3]


@st.composite
def _answers(draw: st.DrawFn) -> tuple[bytes, bool]:
    """An answer of two bytes, and whether RFC 9112 accepts it: section 6.3 says which lengths do not count."""
    is_chunked = draw(st.booleans())
    lengths = draw(st.lists(st.sampled_from(_EQUAL if is_chunked else _LENGTHS), max_size=3))
    fields = [b"Content-Length: " + length for length in lengths]
    fields += (
        [draw(st.sampled_from([b"Transfer-Encoding: chunked", b"TRANSFER-ENCODING:chunked "]))]
        if is_chunked
        else []
    )
    fields += draw(st.sampled_from([[], [b"X-A:"], [b"X-A: a\r\n b"], [b"X-A: \xe9"]]))
    lines = [
        draw(st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.1 200 ", b"HTTP/1.1 200"])),
        *draw(st.permutations(fields)),
    ]
    head = b"".join(line + draw(_LINES) for line in [*lines, b""])
    values = [value.strip() for length in lengths for value in length.split(b",")]
    right = all(value == b"2" for value in values)
    return head + (b"2\r\nok\r\n0\r\n\r\n" if is_chunked else b"ok"), right


@given(st.lists(_answers(), min_size=1, max_size=10))
def test_answers_are_judged_by_the_rules_of_their_length(answers: list[tuple[bytes, bool]]) -> None:
    async def judged() -> list[bool]:
        async with _endpoint([raw for raw, _ in answers]) as (_, post):
            return [isinstance(await post(), Answer) for _ in answers]

    assert asyncio.run(judged()) == [right for _, right in answers]
