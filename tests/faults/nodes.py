"""A coordinator and two workers of Citus, in a process of its own: gRPC's threads and forks do not go together.

python -m tests.faults.nodes    prints the URL when they are up and the tables lie on them; then starts the node of
                                each port that it reads, and says so; ends with its input
"""

import subprocess
import sys
import threading
import time

import psutil
import psycopg

from broker.db.schema import migrations
from tests.fixtures.citus import Node, Nodes, running_nodes

_DATABASE = "broker"
# Locks of a commit that was cut short last for so long; the default, a minute, is most of a drain.
_SETTINGS = {"citus.recover_2pc_interval": "5s"}
_TRIES = 20


class RunningNodes:
    """From `start` to `stop`.  Raises AssertionError where a node does not start."""

    def __init__(self) -> None:
        self.url = ""  # of the database, at the coordinator
        self.nodes: Nodes
        self._process: subprocess.Popen[str] | None = None
        self._talk = threading.Lock()

    def start(self) -> None:
        program, pipe = [sys.executable, "-m", "tests.faults.nodes"], subprocess.PIPE
        self._process = subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the nodes do not start"
        self.nodes = Nodes.of(self.url)

    def stop(self) -> None:
        if self._process is not None:
            self._process.communicate("")

    def start_again(self, node: Node) -> None:
        """One that was killed."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._talk:
            self._process.stdin.write(f"{node.port}\n")
            self._process.stdin.flush()
            assert self._process.stdout.readline(), f"node {node.port} does not start"


def postmaster(node: Node) -> psutil.Process:
    """Raises psutil.NoSuchProcess if the node is away."""
    try:
        number = int((node.data / "postmaster.pid").read_text().partition("\n")[0])
    except (OSError, ValueError):
        raise psutil.NoSuchProcess(0) from None
    return psutil.Process(number)


def _make(nodes: Nodes) -> str:
    url = nodes.make_database(_DATABASE)
    for node in nodes.all:
        for name, value in _SETTINGS.items():
            node.ask(f"ALTER SYSTEM SET {name} = '{value}'")
        node.ask("SELECT pg_reload_conf()")
    migrations.upgrade(url)
    migrations.distribute_tables(url)
    return url


def _start(node: Node) -> None:
    """Unless somebody else did; backends that outlived a kill are in its way for a moment."""
    for _ in range(_TRIES):
        try:
            node.start()
            return
        except subprocess.CalledProcessError:
            if _answers(node):
                return
        time.sleep(0.5)
    raise AssertionError(f"node {node.port} does not start")


def _answers(node: Node) -> bool:
    try:
        node.ask("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def main() -> None:
    with running_nodes() as nodes:
        print(_make(nodes), flush=True)
        by_port = {node.port: node for node in nodes.all}
        for line in sys.stdin:
            _start(by_port[int(line)])
            print(line, end="", flush=True)


if __name__ == "__main__":
    main()
