"""`broker serve` on a disk with less room than --disk-free-min: it starts, says so, and refuses publishes alone."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.cli.processes import faults, run_broker
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, eventually, message

_PUBLISH = {"messages": [message("x")]}


def _create_topic(broker: BrokerProcess) -> None:
    httpx.put(f"{broker.url}/v1/projects/p/topics/topic", json={}, verify=NO_TLS)


def _publish(broker: BrokerProcess) -> tuple[int, str]:
    url = f"{broker.url}/v1/projects/p/topics/topic:publish"
    answer = httpx.post(url, json=_PUBLISH, verify=NO_TLS, timeout=30)
    return answer.status_code, answer.json().get("error", {}).get("message", "")


def _storage(broker: BrokerProcess) -> Json:
    done = run_broker("doctor", "--json", "--url", broker.url, "--project", "p")
    [found] = [one for one in json.loads(done.stdout) if one["check"] == "storage"]
    return dict(found) | {"exit": done.returncode}


async def test_it_starts_says_so_and_all_workers_refuse_publishes_also_those_that_are_started_again(
    data_dir: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0", "--workers", "2", "--disk-free-min", "900TiB")
    _create_topic(broker)
    [said] = [line for line in broker.log if line.startswith("    Publishing is paused: ")]
    assert "the limit is 989.6 TB (--disk-free-min" in said
    assert [line for line in broker.log if "WARNING main[" in line and "publishing is paused: " in line]
    assert {_publish(broker)[0] for _ in range(20)} == {429}
    for worker in broker.workers():
        worker.kill()
    broker.wait_until_serving()

    def is_refused() -> bool:
        try:
            return _publish(broker)[0] == 429
        except httpx.TransportError:
            return False

    await eventually(is_refused)
    assert {_publish(broker)[0] for _ in range(20)} == {429}
    found = _storage(broker)
    assert (found["state"], found["exit"]) == ("error", 1)
    assert found["why"].startswith("Publishing is paused: ")
    assert faults(broker) == []


async def test_with_capacity_or_without_a_limit_nothing_is_said(
    data_dir: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0", env={"BROKER_DISK_FREE_MIN": "0"})
    _create_topic(broker)
    assert _publish(broker)[0] == 200
    assert not [line for line in broker.log if "paused" in line]
    assert (_storage(broker)["state"], _storage(broker)["exit"]) == ("ok", 0)


async def test_an_embedded_postgresql_that_is_killed_is_told_with_the_reason(
    data_dir: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    broker.postmaster().kill()
    await eventually(lambda: any("the embedded PostgreSQL runs again" in line for line in broker.log))
    [said] = [line for line in broker.log if "the embedded PostgreSQL is started again: " in line]
    assert "it was ended by signal 9" in said
    broker.wait_until_serving()
