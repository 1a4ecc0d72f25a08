"""A TCP proxy that ails: it stands between clients and brokers, and between brokers and their database.

    python -m tests.faults.proxy    takes commands and answers each, in JSON lines; ends with its input

It is a process of its own, for the load keeps its own event loop busy.  `Network` (network.py) is its other end.

    one API, what each of its connections is:

    accepted ──nothing is held──► open ──both ends have closed──► closed
       └── the target refuses ─────┴── a peer resets, an answer is lost, it is cut ──► reset

What passes "in" goes to the target, what passes "out" back to who called.  What is held waits in the buffers of
the kernel, ends and resets too, and goes on as if nothing had been; what is dropped is gone, and a connection that
lost something is reset when the API is whole again: nobody could make sense of the rest.
"""

import asyncio
import contextlib
import random
import re
import socket
import struct
import sys
from typing import Literal, TypeAlias

import msgspec

Way: TypeAlias = Literal["in", "out"]
BOTH_WAYS: tuple[Way, Way] = ("in", "out")

_CHUNK = 65_536
_TRICKLE_SECONDS = 0.01  # between two pieces
_RESET, _QUIETLY = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)  # SO_LINGER: close sends RST, or FIN
# An answer of PostgreSQL's to a statement after which no transaction is open: so it has been committed.
_COMMITTED = re.compile(rb"C.{4}(?:BEGIN|COMMIT|INSERT|UPDATE|DELETE|SELECT)[^\0]*\0.*Z\0\0\0\x05I\Z", re.DOTALL)


class Ailment(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with an API.  Several at a time add up."""

    refuse: bool = False  # new connections
    hold: tuple[Way, ...] = ()  # nothing passes, no end either, and new connections wait
    drop: tuple[Way, ...] = ()  # what comes is thrown away
    delay: dict[Way, float] = {}  # seconds, of each piece
    trickle: int = 0  # bytes at a time
    lose: float = 0.0  # this share of answers is swallowed, and the connection reset
    commits: bool = False  # of these, only answers of PostgreSQL's that say: it is committed


class Open(msgspec.Struct, tag=True):
    """A new door before a target, "host:port" or the path of a socket; the answer is its port."""

    gate: str
    target: str


class Afflict(msgspec.Struct, tag=True):
    gate: str
    number: int  # of the ailment, for Relieve
    ailment: Ailment


class Relieve(msgspec.Struct, tag=True):
    """`cut`: and reset all connections, not only those that lost something."""

    gate: str
    number: int
    cut: bool = False


class Cut(msgspec.Struct, tag=True):
    """Reset all connections."""

    gate: str


Command: TypeAlias = Open | Afflict | Relieve | Cut


class _Connection:
    """Two sockets and what passes between them."""

    def __init__(self, gate: "Gate", caller: socket.socket) -> None:
        self._gate, self._caller = gate, caller
        self._target: socket.socket | None = None
        self.torn = False  # something was dropped

    async def run(self) -> None:
        """Until both ends have closed; reset when one is, or when this task is cancelled."""
        try:
            await self._gate.until_passable("in", "out")
            self._target = await self._gate.connect()
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump("in", self._caller, self._target))
                pumps.create_task(self._pump("out", self._target, self._caller))
        except* (OSError, asyncio.CancelledError):
            self._close(_RESET)
        else:
            self._close(_QUIETLY)

    def _close(self, linger: bytes) -> None:
        for end in (self._caller, self._target):
            if end is not None:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                end.close()

    async def _pump(self, way: Way, source: socket.socket, sink: socket.socket) -> None:
        """Raises OSError when the connection is to be reset."""
        loop, gate = asyncio.get_running_loop(), self._gate
        while True:
            try:
                data: bytes | None = await loop.sock_recv(source, _CHUNK)
            except OSError:
                data = None  # as an end, this does not overtake what is held
            await gate.until_passable(way)
            if gate.drops(way):
                self.torn = True
                if not data:
                    await asyncio.Event().wait()  # until it is cut
                continue
            if data is None:
                raise ConnectionResetError
            if not data:
                with contextlib.suppress(OSError):
                    sink.shutdown(socket.SHUT_WR)
                return
            if way == "out" and gate.loses(data):
                raise ConnectionResetError
            await asyncio.sleep(gate.delay(way))
            while data:
                size = gate.piece() or len(data)
                await loop.sock_sendall(sink, data[:size])
                data = data[size:]
                await asyncio.sleep(_TRICKLE_SECONDS if data else 0)


class Gate:
    """A port before a target.  A second socket keeps the port while new connections are refused."""

    def __init__(self, target: str, dice: random.Random) -> None:
        self._target, self._dice = target, dice
        self._ailments: dict[int, Ailment] = {}
        self._changed = asyncio.Event()  # another one after each change
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._keeper = _bound(0)
        self.port: int = self._keeper.getsockname()[1]

    # --- what is wrong with it -----------------------------------------------------------------------------------

    async def afflict(self, number: int, ailment: Ailment) -> None:
        self._ailments[number] = ailment
        await self.change()

    async def relieve(self, number: int) -> None:
        del self._ailments[number]
        await self.change()
        if not any(ailment.drop for ailment in self._ailments.values()):
            await self.cut(torn_only=True)

    async def cut(self, *, torn_only: bool = False) -> None:
        cut = [task for task, connection in self._connections.items() if connection.torn or not torn_only]
        await _cancel(*cut)

    async def change(self) -> None:
        """To what its ailments say."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        refusing = any(ailment.refuse for ailment in self._ailments.values())
        if refusing and self._accepting is not None:
            await _cancel(self._accepting)
            self._accepting = None
        elif not refusing and self._accepting is None:
            listener = _bound(self.port)
            listener.listen(1024)
            self._accepting = asyncio.create_task(self._accept(listener))

    async def until_passable(self, *ways: Way) -> None:
        while any(way in ailment.hold for ailment in self._ailments.values() for way in ways):
            await self._changed.wait()

    def drops(self, way: Way) -> bool:
        return any(way in ailment.drop for ailment in self._ailments.values())

    def delay(self, way: Way) -> float:
        return max((ailment.delay.get(way, 0.0) for ailment in self._ailments.values()), default=0.0)

    def piece(self) -> int:
        """How many bytes may go at a time; 0: any number."""
        return min((ailment.trickle for ailment in self._ailments.values() if ailment.trickle), default=0)

    def loses(self, answer: bytes) -> bool:
        return any(
            self._dice.random() < ailment.lose and (not ailment.commits or _COMMITTED.search(answer) is not None)
            for ailment in self._ailments.values()
        )

    # --- its connections -----------------------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                caller, _ = await asyncio.get_running_loop().sock_accept(listener)
                connection = _Connection(self, caller)
                task = asyncio.create_task(connection.run())
                self._connections[task] = connection
                task.add_done_callback(self._connections.pop)

    async def connect(self) -> socket.socket:
        """Raises OSError."""
        host, _, port = self._target.rpartition(":")
        family = socket.AF_INET if host else socket.AF_UNIX
        target = socket.socket(family, socket.SOCK_STREAM)
        target.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(target, (host, int(port)) if host else self._target)
        except BaseException:
            target.close()
            raise
        return target


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound


class Proxy:
    """All doors, by name."""

    def __init__(self, seed: str) -> None:
        self._dice = random.Random(seed)
        self._gates: dict[str, Gate] = {}

    async def do(self, command: Command) -> int:
        """Returns the port of the API."""
        if isinstance(command, Open):
            self._gates[command.gate] = Gate(command.target, self._dice)
        gate = self._gates[command.gate]
        match command:
            case Open():
                await gate.change()
            case Afflict():
                await gate.afflict(command.number, command.ailment)
            case Relieve():
                await gate.relieve(command.number)
                if command.cut:
                    await gate.cut()
            case Cut():
                await gate.cut()
        return gate.port


async def _serve(seed: str) -> None:
    proxy, commands = Proxy(seed), asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(commands)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await commands.readline():
        print(await proxy.do(msgspec.json.decode(line, type=Command)), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
