"""What the console costs: publish and drain while pages are open, and how long a page takes.

By turns on one broker, on fresh topics: no page is open, or the pages of the topic and of its subscription are.
Another broker, with 10,000 subscriptions that all lag, serves each page 200 times, and Chromium visits them.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial

from benchmarks.bench import Bench, Place, call_each, fresh_place, place_with, say
from benchmarks.console_browser import browser_rows
from benchmarks.generators import program_beside
from benchmarks.latency import percentile
from benchmarks.push_wide import create_wide, one_message_to_all
from benchmarks.report import Row
from benchmarks.servers import Broker, Server
from benchmarks.side_by_side import Side, side_by_side, take_drain, take_publish
from benchmarks.viewers import page_request
from benchmarks.wire import Connection, LoadFailed, build_request

_EVERY_SECONDS = 5.0  # as console.js
_MARKS = {1: 0.97, 20: None, 50: 0.95}  # by the number of viewers: rates with them : without
_MANY, _MANY_PERCENT = 20, 1.0  # the mark: viewers, and what they take of a core
_SAMPLES = 200
_P50_MS, _P99_MS = 30.0, 100.0  # marks of a page
_SAMPLED_SECONDS = 300.0  # until all lags have been sampled
_PROJECT = "/console/projects/wide"
_PAGES = {
    "overview": _PROJECT,
    "subscriptions": f"{_PROJECT}/subscriptions",
    "subscriptions by age": f"{_PROJECT}/subscriptions?orderBy=oldestUndeliveredMessageAge+desc",
    "subscription": f"{_PROJECT}/subscriptions/wide-7",
    "topic": f"{_PROJECT}/topics/wide",
    "messages of a topic": f"{_PROJECT}/topics/wide/messages",
    "dead letters": f"{_PROJECT}/deadLetters",
}
_LAG = "/v1/projects/wide/lag"
_LISTS = {  # of the API
    "lags by name": f"{_LAG}?pageSize=100",
    "lags, the largest backlogs first": f"{_LAG}?pageSize=100&orderBy=undeliveredMessages%20desc",
    "lags of one topic, the oldest first": (
        f"{_LAG}?pageSize=100&orderBy=oldestUndeliveredMessageAge%20desc&filter=topic%3Dwide"
    ),
}


def console(bench: Bench) -> list[Row]:
    """Publishes and a drain with pages open."""
    rows: list[Row] = []
    broker = Broker(bench.options.workers)
    try:
        bench.use(broker)
        bench.warm_up(broker, bench.options.warm_up_seconds)
        for viewers, mark in _MARKS.items():
            sides = (
                Side(broker, partial(fresh_place, broker)),
                Side(broker, place_with(broker, partial(_viewers, broker, viewers))),
            )
            words = f"{viewers} {'viewer' if viewers == 1 else 'viewers'} of both pages"
            found = side_by_side(bench, [take_publish, take_drain], *sides, words)
            for row in found:
                row.mark = mark
            rows += found
        rows.append(_cost_of_viewers(broker))
    except LoadFailed as error:
        say(f"console: FAILED: {error}")
        rows.append(Row(measure="console", unit="", error=f"broker: {error}"))
    finally:
        broker.stop()
    return rows


def _viewers(server: Server, number: int, place: Place) -> AbstractContextManager[None]:
    """Keep the pages of a topic and of its subscription open, for as many viewers as `number`."""
    arguments = [server.host, str(server.port), str(number), str(_EVERY_SECONDS)]
    pages = [f"/console/{place.topic}", f"/console/{place.subscriptions[0]}"]
    return program_beside("the viewers' program", "benchmarks.viewers", *arguments, *pages)


def _cost_of_viewers(broker: Broker) -> Row:
    """The processor time that the broker takes for pages that are open, without other calls."""
    row = Row(measure=f"{_MANY} viewers of both pages", unit="% of a core", mark=1.0, lower_is_better=True)
    with fresh_place(broker) as place:
        idle = _busy(broker)
        with _viewers(broker, _MANY, place):
            row.ours = _busy(broker) - idle
    row.ratio = row.ours / _MANY_PERCENT
    row.note = f"with PostgreSQL; ratio: to {_MANY_PERCENT:g} %"
    say(f"{row.measure}: {row.ours:.1f} % of a core")
    return row


def _busy(broker: Broker) -> float:
    """Returns the percentage of a processor that the broker and its database take over some seconds."""
    began, before = time.monotonic(), _processor_seconds(broker)
    time.sleep(2 * _EVERY_SECONDS)
    return (_processor_seconds(broker) - before) / (time.monotonic() - began) * 100


def _processor_seconds(broker: Broker) -> float:
    return sum(broker.cpu_seconds().values())


def console_pages(bench: Bench) -> list[Row]:
    """A broker of its own; each page by itself, at many subscriptions that lag."""
    rows: list[Row] = []
    broker = Broker(bench.options.workers)
    try:
        bench.use(broker)
        create_wide(broker, bench.options.subscriptions)
        call_each(broker, [one_message_to_all() for _ in range(100)])
        wait_until_sampled(broker, "NOT_SAMPLED", "CAUGHT_UP")
        for name, path in _PAGES.items():
            rows += _page_rows(broker, f"page: {name}", page_request(path))
        for name, path in _LISTS.items():
            rows += _page_rows(broker, f"list: {name}", build_request("GET", path))
        rows += browser_rows(broker, _PAGES)
    except LoadFailed as error:
        say(f"pages: FAILED: {error}")
        rows.append(Row(measure="pages", unit="", error=f"broker: {error}"))
    finally:
        broker.stop()
    return rows


def wait_until_sampled(server: Server, *before: str) -> None:
    """Waits until the lag board has no subscription in the states that they had before.  Raises LoadFailed."""
    connection = Connection(server.host, server.port)
    until = time.monotonic() + _SAMPLED_SECONDS
    while time.monotonic() < until:
        if not any(_has_any(connection, state) for state in before):
            connection.close()
            return
        time.sleep(1)
    raise LoadFailed(f"the lags were not sampled within {_SAMPLED_SECONDS:g} s")


def _has_any(connection: Connection, state: str) -> bool:
    path = f"/v1/projects/wide/lag?pageSize=1&filter=deliveryState%3D{state}"
    return b'"subscription"' in connection.call(build_request("GET", path, b""))


def _page_rows(server: Server, name: str, request: bytes) -> Sequence[Row]:
    connection, took, size = Connection(server.host, server.port), list[float](), 0
    for number in range(_SAMPLES + 1):
        began = time.monotonic()
        answer = connection.call(request)
        if number:  # the first one compiles the template
            took.append(time.monotonic() - began)
        size = len(answer)
    connection.close()
    rows = []
    for percent, most in ((50, _P50_MS), (99, _P99_MS)):
        row = Row(measure=f"{name}, p{percent}", unit="ms", mark=1.0, lower_is_better=True)
        row.ours = percentile(took, percent)
        row.ratio = None if row.ours is None else row.ours / most
        row.note = f"ratio: to {most:g} ms; {size:,} bytes as sent"
        rows.append(row)
        say(f"{row.measure}: {row.ours:.1f} ms")
    return rows
