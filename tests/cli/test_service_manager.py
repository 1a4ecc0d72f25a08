"""`broker serve` under systemd: the socket that it hands over, and what it is told."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import httpx
import pytest

from broker.cli.server.service_manager import service_manager
from broker.net.listener import CannotListen
from tests.cli.processes import alive, family, faults, is_ready
from tests.fixtures.broker import NO_TLS, BrokerProcess, eventually

pytestmark = [pytest.mark.slow, pytest.mark.ci]

StartBroker = Callable[..., BrokerProcess]


class HasFileno(Protocol):
    def fileno(self) -> int: ...


# As systemd does: the socket is the third descriptor, and the number of the process itself is in its environment.
# And as deploy/systemd/broker.service has it: no new privileges (38), no memory that is written and run (65), where
# the kernel knows that.
_AS_SYSTEMD = """
import ctypes, os, sys
control = ctypes.CDLL(None).prctl
control(38, 1, 0, 0, 0), control(65, 1, 0, 0, 0)
os.umask(0o077)
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "broker.socket"}
os.execv(sys.executable, [sys.executable, "-m", "broker", *sys.argv[2:]])
"""


@contextmanager
def _listening(family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> Iterator[socket.socket]:
    with socket.socket(family, kind) as listener:
        listener.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            listener.listen(128)
        yield listener


@contextmanager
def _reported(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)
        yield manager


def _hears(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().splitlines()


def _handing_over(listener: socket.socket, address: str, database_url: str) -> dict[str, object]:
    return {
        "program": (sys.executable, "-c", _AS_SYSTEMD, str(listener.fileno())),
        "pass_fds": (listener.fileno(),),
        "env": {"NOTIFY_SOCKET": address, "BROKER_DATABASE_URL": database_url, "BROKER_PORT": "1"},
    }


async def test_a_call_waits_at_its_socket_for_the_next_broker(
    start_broker: StartBroker, database_url: str, tmp_path: Path
) -> None:
    address = str(tmp_path / "notify")
    with _listening() as listener, _reported(address) as manager:
        port = listener.getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, verify=NO_TLS) as client:
            for _ in range(2):
                waiting = asyncio.create_task(client.put("/v1/projects/first/topics/topic", json=_TRANSFORMED))
                options = _handing_over(listener, address, database_url)
                broker = await asyncio.to_thread(start_broker, **options)
                assert _hears(manager) == ["READY=1", f"STATUS=Serves {broker.url}"]
                assert broker.url.endswith(f":{port}")  # that of the socket, whatever the settings say
                assert is_ready(broker)
                assert (await waiting).status_code in (200, 409)
                published = await client.post("/v1/projects/first/topics/topic:publish", json=_MESSAGES)
                assert published.status_code == 200
                processes = family(broker)
                assert not [name for worker in broker.workers() for name in worker.environ() if name in _TAKEN]
                broker.process.terminate()
                assert _hears(manager)[0] == "STOPPING=1"
                assert (await asyncio.to_thread(broker.process.wait, 20), faults(broker)) == (0, [])
                await eventually(lambda processes=processes: not alive(processes))


_FUNCTION = "function same(message, metadata) { return message; }"
_TRANSFORMED = {"messageTransforms": [{"javascriptUdf": {"functionName": "same", "code": _FUNCTION}}]}
_MESSAGES = {"messages": [{"data": "aGVsbG8="}]}
_TAKEN = {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET"}


def _variables(*names: str, pid: int | None = None) -> dict[str, str]:
    return {
        "LISTEN_PID": str(pid or os.getpid()),
        "LISTEN_FDS": str(len(names)),
        "LISTEN_FDNAMES": ":".join(names),
    }


@contextmanager
def _handed_over(*sockets: HasFileno) -> Iterator[int]:
    """Copies with descriptors that follow each other, which nobody else uses; the first of them."""
    first = 200
    for number, each in enumerate(sockets):
        os.dup2(each.fileno(), first + number)
    yield first
    for number in range(len(sockets)):
        with suppress(OSError):  # whoever took it has closed it
            os.close(first + number)


def test_sockets_go_by_their_names_and_what_is_somebody_elses_is_left_alone() -> None:
    with _listening() as main, _listening() as metrics, _handed_over(metrics, main) as first:
        given = service_manager(_variables("metrics", "broker.socket"), first=first).sockets
        assert {name: each.getsockname() for name, each in given.items()} == {
            "main": main.getsockname(),
            "metrics": metrics.getsockname(),
        }
        for each in given.values():
            each.close()
    assert service_manager(_variables("main", pid=1)).sockets == {}
    assert service_manager({}).sockets == {}


def test_a_socket_that_cannot_be_served_is_refused_with_the_reason(tmp_path: Path) -> None:
    def refusal(*handed_over: HasFileno) -> str:
        with _handed_over(*handed_over) as first, pytest.raises(CannotListen) as refused:
            service_manager(_variables(*("api", "other")[: len(handed_over)]), first=first)
        return str(refused.value)

    with socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        assert "the socket api that is handed over does not listen on a TCP port" in refusal(local)
    with _listening(kind=socket.SOCK_DGRAM) as datagrams:
        assert "does not listen on a TCP port" in refusal(datagrams)
    with _listening() as one, _listening() as two:
        assert "two sockets are handed over for the main port" in refusal(one, two)
    with open(tmp_path / "file", "w") as file:
        assert "is no socket" in refusal(file)


@pytest.mark.parametrize("address", ["{tmp}/notify", "@broker-test-{pid}"])
def test_a_manager_is_told_at_its_address_and_one_that_is_gone_keeps_nobody_from_work(
    tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = address.format(tmp=tmp_path, pid=os.getpid())
    manager = service_manager({"NOTIFY_SOCKET": address})
    with _reported(address.replace("@", "\0")) as hearing:
        manager.report("READY=1", "STATUS=Serves")
        assert _hears(hearing) == ["READY=1", "STATUS=Serves"]
    manager.report("STOPPING=1")
    assert f"the service manager at {address} could not be told" in caplog.text
