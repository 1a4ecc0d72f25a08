"""Reports on the broker itself over REST, an extension: processes, database, findings and settings."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from broker.app.broker import Broker
from broker.app.settings.fields import NAMES
from broker.core.context.process_rows import record_process
from broker.features.inspect.fleet.finding import OK, WARNING, Finding
from broker.features.inspect.fleet.service import FleetService
from tests.fixtures.broker import BrokerProcess, Json, Rest

OWN = pytest.mark.own_broker()


async def _get(rest: Rest, what: str, **params: Any) -> Json:
    return await rest.ok("GET", f"broker/{what}", params=params)


@OWN
async def test_processes_come_in_pages_with_when_they_were_seen(broker: Broker, rest: Rest) -> None:
    now = broker.core.clock.now()
    async with broker.core.database.transaction() as connection:
        for number, age in enumerate((1, 60)):
            seen_at = now - timedelta(seconds=age)
            await record_process(
                connection, process_id=f"{number}", version="0001", now=seen_at, database_connections=18
            )
    found, token = list[Json](), ""
    while True:
        page = await _get(rest, "processes", pageSize=1, **({"pageToken": token} if token else {}))
        assert len(page["processes"]) == 1
        found += page["processes"]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert [each["processId"] for each in found] == sorted({each["processId"] for each in found})
    by_id = {each["processId"]: each for each in found}
    assert (by_id["0"]["running"], by_id["1"]["running"]) == (True, False)
    assert by_id["0"] == by_id["0"] | {"schemaRevision": "0001", "maxDatabaseConnections": 18}
    assert any(each["running"] for each in found if each["processId"] not in ("0", "1")), "the one that answers"


@OWN
async def test_the_database_is_described_and_checked_as_by_the_doctor(broker: Broker, rest: Rest) -> None:
    found = await _get(rest, "database")
    assert found["schema"] == broker.core.database.schema
    assert int(found["sizeBytes"]) > 0
    assert (found["standby"], found["settings"]["max_connections"].isdigit()) == (False, True)
    assert found["brokerProcesses"] >= 1
    assert "data_directory" not in found["settings"]
    findings = (await _get(rest, "findings"))["findings"]
    checks = {each["check"]: each for each in findings}
    assert {"database", "schema", "disk", "fleet", "storage"} <= checks.keys()
    assert checks["schema"]["severity"] == "OK"
    assert checks["schema"]["sentence"].startswith(f"schema: {broker.core.database.schema} at ")
    order = ["ERROR", "UNKNOWN", "WARNING", "OK"]
    severities = [order.index(each["severity"]) for each in findings]
    assert severities == sorted(severities)


@OWN
async def test_a_finding_keeps_the_time_since_when_it_is_known(broker: Broker) -> None:
    now = [datetime(2026, 11, 27, tzinfo=UTC)]

    class Clock:
        def now(self) -> Any:
            return now[0]

    found = [Finding("disk", WARNING, "10 % are free", "PostgreSQL stops when it is full", "df")]
    service = FleetService(
        broker.core.database,
        Clock(),  # type: ignore[arg-type]
        broker.core.storage,
        database_url="",
        checks=[lambda: iter(found)],
        settings=(),
    )
    [disk, _] = await service.list_findings()
    assert disk.finding.sentence == "disk: 10 % are free (PostgreSQL stops when it is full)."
    first, later = now[0], now[0] + timedelta(minutes=1)
    now[0] = later
    found[:] = [Finding("disk", WARNING, "9 % are free")]
    assert [each.since for each in await service.list_findings()] == [first, first]
    now[0] += timedelta(minutes=1)
    found[:] = [Finding("disk", OK, "half of it is free")]
    since = {each.finding.check: each.since for each in await service.list_findings()}
    assert since == {"disk": now[0], "storage": first}


def test_settings_are_shown_with_their_origin_and_without_passwords(
    start_broker: Callable[..., BrokerProcess], database_url: str
) -> None:
    secret = database_url + ("&" if "?" in database_url else "?") + "password=hunter2"
    url = start_broker("--database-url", secret, "--port", "0", "--pool-size", "5").url
    answer = httpx.get(f"{url}/v1/broker/settings")
    settings = {each["name"]: each for each in answer.json()["settings"]}
    assert list(settings) == list(NAMES)
    assert settings["pool_size"] == {"name": "pool_size", "value": "5", "origin": "--pool-size"}
    assert settings["auth"]["origin"] == "default"
    assert "hunter2" not in answer.text
