"""A worker that starts while PostgreSQL does not answer waits for it, says so, and ends when it is told to."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import psycopg
import pytest

from broker.app.asgi import create_app
from broker.app.config import AppConfig
from broker.cli.server.children import restart_delay
from broker.db.embedded.cluster import Cluster
from tests.cli.processes import alive, faults, run_broker
from tests.fixtures.broker import NO_TLS, BrokerProcess, eventually
from tests.fixtures.database import in_schema

pytestmark = [pytest.mark.slow, pytest.mark.ci]

StartBroker = Callable[..., BrokerProcess]


async def test_nothing_is_left_running_of_a_start_that_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """The pool's tasks survive being cancelled; a process with one of them never ends."""
    app = create_app(AppConfig(database_url="postgresql://nobody@127.0.0.1:1/nothing"))

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: MutableMapping[str, Any]) -> None:
        assert message["type"] == "lifespan.startup.failed"

    caplog.set_level(logging.WARNING)
    starting = asyncio.ensure_future(app({"type": "lifespan", "path": "", "state": {}}, receive, send))
    await eventually(lambda: bool(caplog.records))
    await asyncio.wait((starting,), timeout=1)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    [record] = caplog.records  # not one for each attempt
    assert record.getMessage().startswith("the database is away: ")


@pytest.fixture
def own_server(data_dir: Path) -> Iterator[Cluster]:
    """A PostgreSQL of the operator's own that can be stopped."""
    cluster = Cluster(data_dir)
    cluster.open()
    yield cluster
    cluster.close()


def _said(broker: BrokerProcess, text: str) -> int:
    return sum(text in line for line in broker.log)


async def test_a_worker_that_starts_without_its_database_refuses_calls_until_it_is_there(
    start_broker: StartBroker, own_server: Cluster
) -> None:
    broker = start_broker("--database-url", own_server.url, "--port", "0")
    await asyncio.to_thread(own_server.close)
    [worker] = broker.workers()
    worker.kill()
    await eventually(lambda: _said(broker, "broker.state: the database is away") == 1)
    async with httpx.AsyncClient(base_url=broker.url, timeout=30, verify=NO_TLS) as client:
        statuses = [(await client.get(path)).status_code for path in ("/readyz", "/healthz")]
        assert statuses == [503, 200]
        body = {"messages": [{"data": "YQ==" * 100_000}]}  # more than a socket holds
        answer = await client.post("/v1/projects/p/topics/t:publish", json=body)
        assert (answer.status_code, answer.json()["error"]["status"]) == (503, "UNAVAILABLE")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _any_call_over_grpc(broker)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        await asyncio.to_thread(own_server.open)
    await _served_again(broker)
    assert _said(broker, "broker.state: the database is back") == 1
    assert _said(broker, "worker process 0 was ended by SIGKILL") == 1
    assert faults(broker) == []


async def _served_again(broker: BrokerProcess) -> None:
    async with httpx.AsyncClient(base_url=broker.url, timeout=30, verify=NO_TLS) as client:

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await eventually(ready)


async def _any_call_over_grpc(broker: BrokerProcess) -> None:
    async with grpc.aio.insecure_channel(broker.url.removeprefix("http://")) as channel:
        await channel.unary_unary("/google.pubsub.v1.Publisher/GetTopic")(b"", timeout=30)


async def test_a_worker_that_waits_for_its_database_ends_when_it_is_told_to(
    start_broker: StartBroker, own_server: Cluster
) -> None:
    broker = start_broker("--database-url", own_server.url, "--port", "0")
    await asyncio.to_thread(own_server.close)
    for number in (1, 2):
        await eventually(lambda: len(broker.workers()) == 1)  # one that ended with its database is started again
        [worker] = broker.workers()
        said = _said(broker, "the database is away")
        worker.kill() if number == 1 else worker.terminate()
        await eventually(lambda: not alive([worker]))  # noqa: B023
        await eventually(lambda: _said(broker, "the database is away") > said)  # noqa: B023
    assert broker.stop() == 0
    assert faults(broker) == []


# Nobody can get keys to sign with: how a start comes to fail long after it has begun.
_FAIL = """
    DELETE FROM signing_keys;
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'no keys' USING ERRCODE = '{}'; END $$;
    CREATE TRIGGER fails BEFORE INSERT ON signing_keys EXECUTE FUNCTION fail();
"""
_CONNECTION_LOST, _UNFORESEEN = "57P01", "XX001"


@contextmanager
def _starting_fails(broker: BrokerProcess, server: Cluster, sqlstate: str) -> Iterator[None]:
    """The broker's worker is started again, and cannot within the block."""
    with psycopg.connect(in_schema(server.url), autocommit=True) as database:
        database.execute(_FAIL.format(sqlstate))
        broker.workers()[0].kill()
        yield
        database.execute("DROP FUNCTION fail CASCADE")


async def test_a_database_that_goes_away_within_a_start_is_waited_for_too(
    start_broker: StartBroker, own_server: Cluster
) -> None:
    broker = start_broker("--database-url", own_server.url, "--port", "0")
    with _starting_fails(broker, own_server, _CONNECTION_LOST):
        await eventually(lambda: _said(broker, "broker.state: the database is away") == 1)
    await eventually(lambda: _said(broker, "broker.state: the database is back") == 1)
    assert faults(broker) == []


async def test_a_worker_that_cannot_start_says_why_and_is_started_again_and_calls_are_refused_at_once_meanwhile(
    start_broker: StartBroker, own_server: Cluster
) -> None:
    broker = start_broker("--database-url", own_server.url, "--port", "0")
    with _starting_fails(broker, own_server, _UNFORESEEN):
        await eventually(lambda: _said(broker, "worker process 0 cannot start: no keys; ") >= 1)
        async with httpx.AsyncClient(base_url=broker.url, timeout=30, verify=NO_TLS) as client:
            for path in ("/readyz", "/healthz", "/v1/projects/p/topics"):
                answer = await client.get(path)
                assert (answer.status_code, "No worker process" in answer.text) == (503, True)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await _any_call_over_grpc(broker)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    await _served_again(broker)
    await eventually(lambda: _said(broker, "worker process 0 serves again") == 1)
    for told_elsewhere in ("Traceback", "Application startup failed", "never retrieved"):
        assert _said(broker, told_elsewhere) == 0


def test_a_broker_none_of_whose_workers_can_start_ends_and_says_why_in_one_line(own_server: Cluster) -> None:
    """Where it would start them again and again for ever, on a port that takes calls and never answers."""
    with psycopg.connect(in_schema(own_server.url), autocommit=True) as database:
        database.execute(_FAIL.format(_UNFORESEEN))
    done = run_broker("serve", "--database-url", own_server.url, "--port", "0", "--workers", "2")
    *logged, said = done.stderr.splitlines()
    assert done.returncode == 1
    assert re.fullmatch("broker: worker process [01] cannot start: no keys", said)
    assert len([line for line in logged if " ERROR " in line]) <= 2  # what each process met
    assert "Traceback" not in done.stderr


def test_a_worker_that_died_is_started_at_once_and_one_that_does_so_young_again_and_again_later_and_later() -> None:
    delays = [restart_delay(short_lives) for short_lives in range(20)]
    assert delays[:4] == [0, 0, 0.2, 0.4]
    assert delays == sorted(delays)
    assert delays[-1] == restart_delay(100_000) == 10
