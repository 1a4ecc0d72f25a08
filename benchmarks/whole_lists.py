"""Lists to their end while others publish: each entry comes once; time and statements of a page.

A broker of its own has a topic with 10,000 subscriptions, of which first none lags and then all do;
10,000 topics of another project, 100,000 dead letters of 50,001 causes, 1,000 operations that have ended, and 1,000
marks.  Subscriptions and marks are made by calls, topics, dead letters and operations are put into PostgreSQL.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.backlog import Backlog, database_connection
from benchmarks.bench import Bench, call_each, say
from benchmarks.console import wait_until_sampled
from benchmarks.list_walk import Get, pages, publishing
from benchmarks.push_wide import create_wide, one_message_to_all
from benchmarks.report import Row, number
from benchmarks.servers import Broker
from benchmarks.statement_log import StatementLog
from benchmarks.wire import Connection, LoadFailed, build_request

_TOPICS, _DEAD_LETTERS, _OPERATIONS, _MARKS = 10_000, 100_000, 1_000, 1_000
_BESIDE = "projects/wide/topics/beside"  # has no subscription
_COUNTED = 5  # calls whose statements are counted
_ADDED_TOPICS = f"""
INSERT INTO topics (name, created_at)
SELECT 'projects/many/topics/topic-' || n, now() FROM generate_series(1, {_TOPICS}) AS n
"""
_ADDED_SHARDS = """
INSERT INTO shards (topic_id, ordinal, last_publish_time)
SELECT topic_id, 0, now() FROM topics WHERE name LIKE 'projects/many/topics/%'
"""
_ADDED_OPERATIONS = f"""
INSERT INTO operations (
    name, project, verb, target, started_by, request, progress, counts, done, total, is_estimate, created_at,
    updated_at, next_step_at, ended_at
)
SELECT 'projects/wide/operations/' || lpad(to_hex(n), 20, '0'), 'projects/wide', 'redrive',
       'projects/wide/subscriptions/wide-1', 'user:someone@example.com', '{{}}', '{{}}', '{{"redriven": 1}}', 1, 1,
       false, now() - ({_OPERATIONS} - n) * interval '1 second', now(), now(), now()
FROM generate_series(1, {_OPERATIONS}) AS n
"""

Key = Callable[[Any], str]  # of an entry


@dataclass(frozen=True, slots=True)
class _List:
    """A list and what it must have: `count` entries in `field`, each with a `key` of its own."""

    measure: str
    path: str  # with a query that has the size of a page
    field: str
    key: Key
    count: int


def _lags(state: str, count: int) -> Sequence[_List]:
    path = "projects/wide/lag?pageSize=100"
    where = f"{count:,} subscriptions, {state}"
    found = [_List(f"lags of {where}", f"{path}&orderBy=subscription", "subscriptions", _subscription, count)]
    for order in ("undeliveredMessages", "oldestUndeliveredMessageAge"):
        asked = f"{path}&orderBy={order}%20desc"
        found.append(
            _List(f"lags of {where}, the largest {order} first", asked, "subscriptions", _subscription, count)
        )
    return found


def _subscription(entry: Any) -> str:
    return str(entry["subscription"])


def _name(entry: Any) -> str:
    return str(entry["name"])


def _source(entry: Any) -> str:
    return str(entry["sourceMessageId"])


def _fingerprint(entry: Any) -> str:
    return str(entry["key"]["fingerprint"])


_DEAD, _LETTERS = "projects/dead", f"{_DEAD_LETTERS:,} dead letters"
_GROUPS = _DEAD_LETTERS // 2 + 1  # two each, but for the first and the last one
_LISTS: Sequence[_List] = (
    _List(f"{_TOPICS:,} topics", "projects/many/topics?pageSize=100", "topics", _name, _TOPICS),
    _List(
        f"{_TOPICS:,} topics with their figures",
        "projects/many/topics?pageSize=100&view=STATS",
        "topics",
        _name,
        _TOPICS,
    ),
    _List(
        f"{_LETTERS} of a subscription",
        f"{_DEAD}/subscriptions/dead/deadLetters?pageSize=100",
        "deadLetters",
        _source,
        _DEAD_LETTERS,
    ),
    _List(f"{_LETTERS} of a project", f"{_DEAD}/deadLetters?pageSize=100", "deadLetters", _source, _DEAD_LETTERS),
    _List(
        f"{_GROUPS:,} causes of {_LETTERS}, pages of 1,000",
        f"{_DEAD}/deadLetters?pageSize=1000&groupBy=fingerprint&orderBy=count%20desc",
        "groups",
        _fingerprint,
        _GROUPS,
    ),
    _List(
        f"{_OPERATIONS:,} operations, the newest first",
        "projects/wide/operations?pageSize=100&orderBy=createTime%20desc",
        "operations",
        _name,
        _OPERATIONS,
    ),
    _List(
        f"{_OPERATIONS:,} operations of a state",
        "projects/wide/operations?pageSize=100&filter=state%3DSUCCEEDED",
        "operations",
        _name,
        _OPERATIONS,
    ),
    _List(f"{_MARKS:,} events", "projects/wide/events?pageSize=100", "events", _name, _MARKS),
)


def whole_lists(bench: Bench) -> list[Row]:
    """A broker of its own; ours alone."""
    rows: list[Row] = []
    broker = Broker(bench.options.workers)
    count = bench.options.subscriptions
    try:
        bench.use(broker)
        create_wide(broker, count)
        call_each(broker, [build_request("PUT", f"/v1/{_BESIDE}")])
        wait_until_sampled(broker, "NOT_SAMPLED")
        rows += _rows(broker, _lags("none lags", count), published_to=_BESIDE)
        call_each(broker, [one_message_to_all() for _ in range(100)])
        wait_until_sampled(broker, "NOT_SAMPLED", "CAUGHT_UP")
        rows += _rows(broker, _lags("all lag", count), published_to="projects/wide/topics/wide")
        _fill(broker)
        rows += _rows(broker, _LISTS, published_to="projects/dead/topics/dead")
    except (LoadFailed, psycopg.Error) as error:
        say(f"whole lists: FAILED: {error}")
        rows.append(Row(measure="whole lists", unit="", error=f"broker: {error}"))
    finally:
        broker.stop()
    return rows


def _fill(broker: Broker) -> None:
    """Makes topics, dead letters, operations and marks.  Raises LoadFailed."""
    began = time.monotonic()
    mark = [json.dumps({"text": f"Release {n}"}).encode() for n in range(_MARKS)]
    call_each(broker, [build_request("POST", "/v1/projects/wide/marks", body) for body in mark])
    topic = f"{_DEAD}/topics/dead"
    subscription = json.dumps({"topic": topic}).encode()
    call_each(
        broker,
        [
            build_request("PUT", f"/v1/{topic}"),
            build_request("PUT", f"/v1/{_DEAD}/subscriptions/dead", subscription),
        ],
    )
    with database_connection(broker.database_url) as database:
        backlog = Backlog(database, topic, _DEAD_LETTERS)
        backlog.fill()
        backlog.give_up(f"{_DEAD}/subscriptions/dead")
        database.execute(_ADDED_TOPICS.encode())
        database.execute(_ADDED_SHARDS.encode())
        database.execute(_ADDED_OPERATIONS.encode())
        database.execute(b"ANALYZE")
    say(f"filled in {time.monotonic() - began:.0f} s")


def _rows(broker: Broker, lists: Sequence[_List], *, published_to: str) -> list[Row]:
    """Walks the lists, then counts the statements of their pages while nobody publishes."""
    rows = []
    for each in lists:
        row = Row(measure=f"a page of {each.measure}, to the end", unit="ms", lower_is_better=True)
        try:
            with publishing(broker, published_to), _calling(broker) as get:
                _walk(row, each, get)
        except LoadFailed as error:
            row.error = str(error)
        rows.append(row)
    with StatementLog(broker) as log:
        for row, each in zip(rows, lists, strict=True):
            row.note += f"; statements of a page: {_statements(broker, each, log)}"
            say(f"{row.measure}: {number(row.ours)} ms; {row.note} {row.error}")
    return rows


@contextmanager
def _calling(broker: Broker) -> Iterator[Get]:
    """A function that gets what has a path, on a connection of its own."""
    connection = Connection(broker.host, broker.port)

    def get(path: str) -> tuple[float, bytes]:
        began = time.perf_counter()
        answer = connection.call(build_request("GET", f"/v1/{path}", b""))
        return time.perf_counter() - began, answer

    try:
        yield get
    finally:
        connection.close()


def _walk(row: Row, each: _List, get: Get) -> None:
    """Fills a row.  Raises LoadFailed if an entry is left out or comes twice."""
    taken, found = list[float](), list[str]()
    for seconds, answer in pages(get, each.path):
        taken.append(seconds * 1000)
        found += map(each.key, json.loads(answer).get(each.field, []))
    row.ours, row.rounds = statistics.median(taken), {"broker": taken}
    row.note = f"{len(found):,} entries in {len(taken)} pages, the longest {number(max(taken))} ms"
    if not len(found) == len(set(found)) == each.count:
        raise LoadFailed(
            f"{len(set(found)):,} of {each.count:,} entries, {len(found) - len(set(found))} of them twice"
        )


def _statements(broker: Broker, each: _List, log: StatementLog) -> int:
    """Returns the fewest statements of any of the first pages: meanwhile jobs of the broker run others."""
    counts = []
    with _calling(broker) as get:
        walk = pages(get, each.path)
        for _ in range(_COUNTED):
            log.skip()
            if next(walk, None) is None:
                break
            counts.append(len(log.read()))
    return min(counts)
