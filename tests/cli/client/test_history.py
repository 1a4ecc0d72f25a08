"""What `broker history` draws, and what it asks for."""

import json

import pytest

from broker.client.exit_codes import MISUSE
from tests.cli.client.answering import AnsweringServer
from tests.cli.client.terminal import Terminal

METRIC = "pubsub_subscription_push_requests_total"


def series(kind: str, labels: dict[str, str], *points: tuple[str, str, int]) -> dict[str, object]:
    """Points from minutes to minutes of an hour."""
    times = [
        (f"2026-11-23T10:{start}:00.000Z", f"2026-11-23T10:{end}:00.000Z", value) for start, end, value in points
    ]
    return {
        "metric": {"type": METRIC, "labels": labels},
        "metricKind": kind,
        "points": [
            {"interval": {"startTime": start, "endTime": end}, "value": {"int64Value": str(value)}}
            for start, end, value in times
        ],
    }


def answer(*found: dict[str, object], unit: str = "1") -> bytes:
    interval = {"startTime": "2026-11-23T10:00:00.000Z", "endTime": "2026-11-23T10:20:00.000Z"}
    body = {"timeSeries": found, "unit": unit, "alignmentPeriod": "60s", "interval": interval}
    return json.dumps(body).encode()


def test_each_label_has_a_chart_as_wide_as_the_terminal(terminal: Terminal, server: AnsweringServer) -> None:
    acks, failures = {"response_class": "ack"}, {"response_class": "unreachable"}
    server.answer = (
        200,
        answer(
            series("DELTA", acks, ("19", "20", 600), ("00", "01", 300)), series("DELTA", failures, ("05", "06", 60))
        ),
    )
    terminal.columns = 40
    typed = terminal.type(f"broker history {METRIC} subscriptions/s --url {server.url} --project p")
    assert [path for path, _ in server.got] == [
        f"/v1/projects/p/timeSeries?metric={METRIC}&interval=3600s&resource=projects%2Fp%2Fsubscriptions%2Fs"
    ]
    lines = typed.text.splitlines()
    titles = [line for line in lines if line.startswith("pubsub")]
    assert titles == [f"{METRIC} of subscriptions/s, response_class={value}" for value in ("ack", "unreachable")]
    assert lines[1:9] == [
        "     10/s │                   █",
        "          │                   █",
        "          │                   █",
        "          │                   █",
        "      5/s │█                  █",
        "          │█                  █",
        "          │█                  █",
        "          │█                  █",
    ]
    assert "A column is 1m; highest 10/s at 10:19:00, last 10/s, 900 in all." in lines


def test_the_points_of_a_gauge_are_drawn_in_the_periods_that_they_end(
    terminal: Terminal, server: AnsweringServer
) -> None:
    server.answer = (200, answer(series("GAUGE", {}, ("20", "20", 7), ("01", "01", 90)), unit="s"))
    typed = terminal.pipe(f"broker history {METRIC} --since 1d --every 10m --url {server.url} --project p")
    assert server.got[0][0].endswith("&interval=86400s&alignmentPeriod=600s")
    assert "A column is 1m; highest 1m30s at 10:00:00, last 7s." in typed.text


@pytest.mark.parametrize("resource", ["orders", "snapshots/x", "topics/"])
def test_a_resource_that_has_no_metrics_is_refused_before_the_call(
    terminal: Terminal, server: AnsweringServer, resource: str
) -> None:
    typed = terminal.pipe(f"broker history {METRIC} {resource} --url {server.url} --project p")
    assert (typed.code, "RESOURCE must be topics/NAME" in typed.text) == (MISUSE, True)
