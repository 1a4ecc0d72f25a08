"""What the log says of calls: nothing, or at debug a line for each; and once that calls are refused."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from broker.api.generated import messages
from broker.api.logging.call_log import resource_of
from broker.observability.log import JsonFormatter, LineFormatter
from tests.api.grpc.wire import serving
from tests.fixtures.broker import eventually
from tests.fixtures.in_process import own_broker


def _said(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == logger]


async def test_at_debug_each_call_has_a_line_without_what_it_carries(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "broker.calls")
    async with own_broker(database_url) as (_, rest):
        await rest.create_topic()
        await rest.error("GET", rest.topic("none"), params={"key": "SECRET"})
    created, missing = _said(caplog, "broker.calls")
    assert created.startswith("PUT /v1/projects/p/topics/topic 200 ")
    assert " ms 127.0.0.1:" in created
    assert missing.startswith("GET /v1/projects/p/topics/none 404 ")


async def test_a_call_over_grpc_has_one_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "broker.calls")
    async with serving() as served:
        peer = await served.connect()
        peer.call(1, method="Nothing")
        await peer.answer(1)
        peer.call(3, method="Fault")
        await peer.answer(3)
    said = _said(caplog, "broker.calls")
    assert [line.split()[:3] for line in said][-1] == ["/test.Service/Fault", "-", "INTERNAL"]
    assert " ms 127.0.0.1:" in said[-1]


async def test_the_line_of_a_call_has_the_id_that_its_caller_is_told(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "broker.calls")
    async with own_broker(database_url) as (_, rest):
        made = await rest.client.get("/v1/projects/p/topics")
        given = await rest.client.get("/v1/projects/p/topics/none", headers={"X-Request-Id": "mine-1"})
    assert given.headers["x-request-id"] == "mine-1"
    lines = [LineFormatter().format(record) for record in caplog.records if record.name == "broker.calls"]
    reported = [made.headers["x-request-id"], "mine-1"]
    assert [line.rpartition(" [request ")[2] for line in lines] == [f"{each}]" for each in reported]


async def test_the_access_log_is_a_file_of_lines_if_it_is_asked_to_be(database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    async with own_broker(database_url, access_log=str(path)) as (_, rest):
        await rest.create_topic()
        path.rename(tmp_path / "moved")
        await rest.error("GET", rest.topic("none"), params={"key": "SECRET"})
    moved, written = (tmp_path / "moved").read_text(), path.read_text()
    assert re.search(r" INFO .* broker.access: PUT /v1/projects/p/topics/topic 200 .* \[request .*\]\n$", moved)
    assert " GET /v1/projects/p/topics/none 404 " in written
    assert "SECRET" not in written


async def test_a_slow_request_has_a_line_that_says_where_its_time_went(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with own_broker(database_url, slow_request_seconds=0.000_001) as (_, rest):
        await rest.create_topic()
        await rest.create_subscription()
        await rest.publish("m")
        caplog.clear()
        async with await psycopg.AsyncConnection.connect(database_url) as locking:
            await locking.execute("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
            body = {"messages": [{"data": "bQ=="}]}
            publishing = asyncio.create_task(rest.client.post(f"/v1/{rest.topic()}:publish", json=body))
            await _until_waiting_for(locking)
            await locking.execute("SELECT pg_sleep(0.05)")
        answer = await publishing
    [record] = [record for record in caplog.records if record.getMessage().startswith("slow request: ")]
    said = re.fullmatch(
        r"slow request: POST /v1/projects/p/topics/topic:publish 200 took ([\d.]+) s: body ([\d.]+), "
        r"turns ([\d.]+), database ([\d.]+), messages 0.000, rest ([\d.]+)",
        record.getMessage(),
    )
    assert said
    total, *parts = map(float, said.groups())
    assert abs(total - sum(parts)) < 0.004  # they are rounded
    assert parts[2] >= 0.05
    assert record.request_id == answer.headers["x-request-id"]  # type: ignore[attr-defined]


async def _until_waiting_for(locking: psycopg.AsyncConnection[Any]) -> None:
    async def waiting() -> bool:
        found = await locking.execute(
            "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        )
        return await found.fetchone() is not None

    await eventually(waiting)


async def test_a_pull_that_waits_for_messages_is_not_slow(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with own_broker(database_url, slow_request_seconds=0.5, pull_wait_seconds=0.6) as (_, rest):
        await rest.create_topic()
        await rest.create_subscription()
        caplog.clear()
        assert await rest.pull(wait=True) == []
    assert [line for line in _said(caplog, "broker.state") if "pull" in line] == []


async def test_over_grpc_the_id_is_in_the_metadata(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "broker.calls")
    async with serving() as served:
        peer = await served.connect()
        reported = []
        for number, method in enumerate(("Nothing", "Fault", "Unknown")):
            peer.call(2 * number + 1, method=method, x_request_id=f"mine-{number}")
            answer = await peer.answer(2 * number + 1)
            reported.append({**answer.headers, **answer.trailers}[b"x-request-id"])
        peer.call(7, method="Nothing")
        assert re.fullmatch(
            rb"[0-9a-f]{10}-[0-9a-f]+", {**(last := await peer.answer(7)).headers, **last.trailers}[b"x-request-id"]
        )
    assert reported == [b"mine-0", b"mine-1", b"mine-2"]
    said = [json.loads(JsonFormatter().format(each)) for each in caplog.records if "Fault" in each.getMessage()]
    assert [(line["logger"], line["request_id"]) for line in said] == [
        ("broker.state", "mine-1"),
        ("broker.calls", "mine-1"),
    ]


async def test_calls_that_are_refused_are_one_line_however_many_they_are(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker")
    async with own_broker(database_url, max_waiting_pulls=0) as (_, rest):
        await rest.create_topic()
        await rest.create_subscription()
        for _ in range(3):
            assert (await rest.error("POST", f"{rest.subscription()}:pull", {"maxMessages": 1}))[0] == "UNAVAILABLE"
    assert _said(caplog, "broker.state") == [
        "calls are refused with UNAVAILABLE: Too many pulls wait in this process; try again"
    ]
    assert _said(caplog, "broker.calls") == []


@pytest.mark.parametrize(
    ("request_", "resource"),
    [
        (messages.Topic(name="projects/p/topics/t", labels={"a": "b"}), "projects/p/topics/t"),
        (messages.UpdateTopicRequest(topic=messages.Topic(name="projects/p/topics/t")), "projects/p/topics/t"),
        (messages.PullRequest(subscription=f"projects/p/subscriptions/{'s' * 200}", max_messages=9), "s" * 200),
        (messages.ListTopicsRequest(project="projects/p"), "projects/p"),
        (messages.ListTopicsRequest(), "-"),
        (messages.PullRequest(max_messages=9), "-"),
    ],
)
def test_the_resource_of_a_call_over_grpc_is_told(request_: object, resource: str) -> None:
    assert resource_of(request_.SerializeToString()).removeprefix("projects/p/subscriptions/") == resource  # type: ignore[attr-defined]
    for broken in (b"\x0a", b"\x0a\xff", b"\x0a\x05", b"\x0a\xff\xff\xff", b"\xff", b""):
        assert resource_of(broken) == "-"


async def test_a_line_of_a_call_has_fields_for_programs(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "broker.calls")
    async with own_broker(database_url) as (_, rest):
        await rest.error("GET", rest.subscription("none"), params={"key": "SECRET"})
    [record] = [record for record in caplog.records if record.name == "broker.calls"]
    written = json.loads(JsonFormatter().format(record))
    assert {name: written[name] for name in ("event", "project", "subscription", "status", "remote_address")} == {
        "event": "call",
        "project": "p",
        "subscription": "projects/p/subscriptions/none",
        "status": "404",
        "remote_address": "127.0.0.1",
    }
    assert re.fullmatch(r"0(\.\d+)?s|\d+\.\d+s", written["duration"])
