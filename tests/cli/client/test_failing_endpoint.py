"""What the commands say while an endpoint fails: the same cause in all of them."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import httpx
import pytest

from tests.cli.client.terminal import Terminal
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json
from tests.fixtures.push_sink import PushSink

PROJECT = "projects/outage"


@pytest.fixture
def failing(clone: Callable[[], AbstractContextManager[str]], push_sink: PushSink) -> Iterator[tuple[str, str]]:
    """The URL of a broker with one message for the subscription `hook`, whose endpoint answers 400; and its id."""
    with clone() as database_url:
        options = ("--port", "0", "--push-failing-after", "0")
        broker = BrokerProcess("--database-url", database_url, *options).wait_until_ready()
        with httpx.Client(base_url=f"{broker.url}/v1/{PROJECT}", verify=NO_TLS) as client:
            client.put("/topics/parcels", json={})
            config = {"pushEndpoint": f"{push_sink.url}/status/400/secret?token=secret"}
            topic = f"{PROJECT}/topics/parcels"
            client.put("/subscriptions/hook", json={"topic": topic, "pushConfig": config})
            published = client.post("/topics/parcels:publish", json={"messages": [{"data": "MQ=="}]})
            while client.get("/subscriptions/hook:pushStatus").json()["state"] != "FAILING":
                time.sleep(0.05)
        yield broker.url, published.json()["messageIds"][0]
        assert broker.stop() == 0
        lines = [line for line in broker.log if "pushes of" in line]
        assert len(lines) == 1
        assert "status 400 (Bad Request)" in lines[0]
        assert "secret" not in lines[0]


def test_all_commands_name_the_failing_endpoint_as_the_cause(terminal: Terminal, failing: tuple[str, str]) -> None:
    url, message_id = failing

    def asked(command: str) -> Json:
        done = terminal.pipe(f"broker {command} --json --url {url} --project outage")
        assert done.code == 0, done.text
        found: Json = json.loads(done.text)
        return found

    [lag] = asked("lag")
    [checked] = [one for one in asked("doctor") if one["check"] == "hook"]
    [report] = asked(f"message show {message_id}")["subscriptions"]
    status = asked("push status hook")
    assert {lag["deliveryState"], checked["finding"], report["deliveryState"], status["deliveryState"]} == {
        "ENDPOINT_FAILING"
    }
    assert checked["command"] == "broker push failures hook"
    for sentence in (lag["verdict"], checked["why"], report["verdict"], status["verdict"]):
        assert "The endpoint fails: " in sentence
        assert "without a success since " in sentence
        assert "status 400 (Bad Request)" in sentence
    failures = [shown["endpointFailure"] for shown in (lag, report, status)]
    assert {(one["status"], one["reason"], one["startTime"]) for one in failures} == {
        (400, "Bad Request", failures[0]["startTime"])
    }
    shown = terminal.pipe(f"broker message show {message_id} --url {url} --project outage").text
    assert "(ENDPOINT_FAILING): " in shown
