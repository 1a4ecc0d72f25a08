"""The proxy of the suite does what each ailment says, and is well again afterwards."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from tests.faults.network import Network
from tests.faults.proxy import BOTH_WAYS, Ailment

_LONG = 0.3  # seconds for which nothing comes that must not come
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network(1)
    network.start()
    yield network
    network.stop()


class Target:
    """A server that answers each line with itself, and notes it; and its clients."""

    def __init__(self, network: Network) -> None:
        self.lines: list[bytes] = []
        self.ends: list[str] = []  # of connections: "end" or "reset"
        self._network = network
        self._address = ("", 0)
        self._writers: list[asyncio.StreamWriter] = []  # of both ends

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Target"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            gate = await asyncio.to_thread(self._network.open, "door", f"{host}:{port}")
            self._address = ("127.0.0.1", int(gate.partition(":")[2]))
            yield self
            await self.close()

    async def close(self) -> None:
        """All connections."""
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while line := await reader.readline():
                self.lines.append(line)
                writer.write(line)
                await writer.drain()
            self.ends.append("end")
            writer.close()
        except ConnectionResetError:
            self.ends.append("reset")

    async def connect(self) -> Streams:
        reader, writer = await asyncio.open_connection(*self._address)
        self._writers.append(writer)
        return reader, writer

    @asynccontextmanager
    async def ailing(self, *, cut: bool = False, **ailment: object) -> AsyncIterator[None]:
        ailing = await self._network.afflict("door", Ailment(**ailment))  # type: ignore[arg-type]
        yield
        await self._network.relieve(ailing, cut=cut)


@pytest.fixture
async def target(network: Network) -> AsyncIterator[Target]:
    async with Target(network).listening() as target:
        yield target


async def _ask(streams: Streams, line: bytes = b"hello\n") -> bytes:
    """What comes back; raises ConnectionError where it is reset."""
    reader, writer = streams
    writer.write(line)
    await writer.drain()
    return await asyncio.wait_for(reader.readline(), 20)


async def _comes_not(awaitable: "asyncio.Future[bytes]") -> bool:
    _, pending = await asyncio.wait([awaitable], timeout=_LONG)
    return bool(pending)


async def _until_told(reported: list[bytes] | list[str], count: int = 1) -> None:
    async with asyncio.timeout(20):
        while len(reported) < count:  # noqa: ASYNC110  # another task's doing
            await asyncio.sleep(0.01)


async def test_what_is_whole_passes_and_so_do_ends(target: Target) -> None:
    streams = await target.connect()
    assert await _ask(streams, b"x" * 30_000 + b"\n") == b"x" * 30_000 + b"\n"
    streams[1].write_eof()
    assert await asyncio.wait_for(streams[0].read(), 20) == b""
    await _until_told(target.ends)
    assert target.ends == ["end"]


async def test_new_connections_are_refused_and_old_ones_stay(target: Target) -> None:
    old = await target.connect()
    async with target.ailing(refuse=True):
        with pytest.raises(ConnectionRefusedError):
            await target.connect()
        assert await _ask(old) == b"hello\n"
    new = await target.connect()
    assert await _ask(new) == b"hello\n"


async def test_a_cut_resets_both_ends_and_a_new_connection_is_whole(target: Target, network: Network) -> None:
    streams = await target.connect()
    await _ask(streams)
    await network.cut("door")
    with pytest.raises(ConnectionResetError):
        await _ask(streams)
    await _until_told(target.ends)
    assert target.ends == ["reset"]
    new = await target.connect()
    assert await _ask(new) == b"hello\n"


@pytest.mark.parametrize("way", BOTH_WAYS)
async def test_a_delay_is_that_of_its_way(target: Target, way: str) -> None:
    streams = await target.connect()
    async with target.ailing(delay={way: _LONG}):
        began = time.monotonic()
        answer = asyncio.create_task(_ask(streams))
        if way == "out":
            await _until_told(target.lines, 1)
        assert await answer == b"hello\n"
        assert time.monotonic() - began >= _LONG


async def test_what_is_held_goes_on_later_and_new_connections_wait(target: Target) -> None:
    old = await target.connect()
    await _ask(old)
    async with target.ailing(hold=BOTH_WAYS):
        from_old = asyncio.ensure_future(_ask(old, b"late\n"))
        new = await target.connect()
        from_new = asyncio.ensure_future(_ask(new, b"new\n"))
        assert await _comes_not(from_old)
        assert await _comes_not(from_new)
        assert target.lines == [b"hello\n"]
    assert (await from_old, await from_new) == (b"late\n", b"new\n")


async def test_an_end_does_not_overtake_what_is_held(target: Target) -> None:
    streams = await target.connect()
    await _ask(streams)
    async with target.ailing(hold=BOTH_WAYS):
        streams[1].write(b"late\n")
        streams[1].close()
        await asyncio.sleep(_LONG)
        assert target.ends == []
    await _until_told(target.lines, 2)
    assert target.lines[-1] == b"late\n"


async def test_what_is_held_may_be_cut_in_place_of_going_on(target: Target) -> None:
    streams = await target.connect()
    await _ask(streams)
    async with target.ailing(hold=BOTH_WAYS, cut=True):
        waiting = asyncio.ensure_future(_ask(streams, b"late\n"))
        assert await _comes_not(waiting)
    with pytest.raises(ConnectionResetError):
        await waiting


@pytest.mark.parametrize("way", BOTH_WAYS)
async def test_half_open_one_way_is_silent_and_later_reset(target: Target, way: str) -> None:
    streams = await target.connect()
    untouched = await target.connect()
    await _ask(untouched)
    async with target.ailing(drop=(way,)):
        waiting = asyncio.ensure_future(_ask(streams, b"dropped\n"))
        if way == "out":
            await _until_told(target.lines, 2)
        assert await _comes_not(waiting)
    with pytest.raises(ConnectionResetError):
        await waiting
    assert (b"dropped\n" in target.lines) == (way == "out")
    assert await _ask(untouched) == b"hello\n"


async def test_a_trickle_brings_everything_in_pieces(target: Target) -> None:
    streams = await target.connect()
    async with target.ailing(trickle=7):
        assert await _ask(streams, b"x" * 100 + b"\n") == b"x" * 100 + b"\n"


async def test_a_lost_answer_is_one_to_a_request_that_came_through(target: Target) -> None:
    streams = await target.connect()
    async with target.ailing(lose=1.0):
        with pytest.raises(ConnectionResetError):
            await _ask(streams)
    assert target.lines == [b"hello\n"]


async def test_of_a_database_only_the_answer_to_a_commit_is_lost(network: Network, database_url: str) -> None:
    url = await asyncio.to_thread(network.open_database, "database", database_url)
    async with await psycopg.AsyncConnection.connect(url) as session:
        ailing = await network.afflict("database", Ailment(lose=1.0, commits=True))
        await session.execute("CREATE TABLE here (n int)")
        await session.execute("INSERT INTO here VALUES (1)")
        with pytest.raises(psycopg.OperationalError):
            await session.commit()
    await network.relieve(ailing)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as session:
        assert await (await session.execute("SELECT n FROM here")).fetchall() == [(1,)]


async def test_ailments_add_up_and_end_one_by_one(target: Target) -> None:
    streams = await target.connect()
    async with target.ailing(hold=("in",)):
        async with target.ailing(hold=("in",)):
            waiting = asyncio.ensure_future(_ask(streams))
            assert await _comes_not(waiting)
        assert await _comes_not(waiting)
    assert await waiting == b"hello\n"
