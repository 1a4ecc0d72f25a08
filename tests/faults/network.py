"""The network of a world: the APIs of the proxy (proxy.py), and what ails them."""

import asyncio
import itertools
import subprocess
import sys
import threading
from dataclasses import dataclass

import msgspec
from sqlalchemy import make_url

from tests.faults.proxy import Afflict, Ailment, Command, Cut, Open, Relieve


@dataclass(frozen=True, slots=True)
class Ailing:
    """An ailment at work; give it to `relieve`."""

    gate: str
    number: int


class Network:
    """The proxy's process, from `start` to `stop`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numbers = itertools.count()
        self._asking = threading.Lock()  # one command at a time
        self._proxy: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = [sys.executable, "-m", "tests.faults.proxy", str(self._seed)]
        pipe = subprocess.PIPE
        self._proxy = subprocess.Popen(program, stdin=pipe, stdout=pipe, start_new_session=True)

    def stop(self) -> None:
        if self._proxy is not None:
            self._proxy.communicate()

    def open(self, gate: str, target: str) -> str:
        """A new door before a target ("host:port", or the path of a socket): its "host:port"."""
        return f"127.0.0.1:{self._ask(Open(gate, target))}"

    def open_database(self, gate: str, url: str) -> str:
        """The same for the PostgreSQL of a URL: the URL through the API."""
        there = make_url(url)
        socket = there.query.get("host")
        host, _, port = self.open(
            gate, f"{socket}/.s.PGSQL.{there.port or 5432}" if socket else f"{there.host}:{there.port or 5432}"
        ).partition(":")
        here = there.set(host=host, port=int(port)).difference_update_query(["host", "port"])
        return here.render_as_string(hide_password=False)

    async def afflict(self, gate: str, ailment: Ailment) -> Ailing:
        ailing = Ailing(gate, next(self._numbers))
        await asyncio.to_thread(self._ask, Afflict(gate, ailing.number, ailment))
        return ailing

    async def relieve(self, ailing: Ailing, *, cut: bool = False) -> None:
        """`cut`: and reset all connections of its door."""
        await asyncio.to_thread(self._ask, Relieve(ailing.gate, ailing.number, cut))

    async def cut(self, gate: str) -> None:
        """Reset all connections of an API."""
        await asyncio.to_thread(self._ask, Cut(gate))

    def _ask(self, command: Command) -> int:
        proxy = self._proxy
        assert proxy is not None
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        with self._asking:
            proxy.stdin.write(msgspec.json.encode(command) + b"\n")
            proxy.stdin.flush()
            return int(proxy.stdout.readline())
