"""A database with very many topics and subscriptions, beside one with few: what grows with them.

    python -m benchmarks.many_resources --topics 100000 --fan 10

The rows are put straight into PostgreSQL, as the broker writes them for one topic; making them by calls would take
an hour.  Then a broker starts on them.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

from broker.db.embedded.cluster import Cluster

_PROJECTS = 100
_SAMPLES = 200
_IDLE_SECONDS = 40.0
_SLOW = "250ms"

_NAMES = {
    "topics": "'projects/project-' || n %% %(projects)s || '/topics/topic-' || n",
    "subscriptions": "'projects/project-' || n %% %(projects)s || '/subscriptions/sub-' || n || '-' || k",
}


class Place:
    """An embedded database, and a broker on it that starts and stops."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.log = directory / "log"
        self.url = f"{Cluster(self.data).url}&options=-csearch_path%3Dbroker"

    @contextmanager
    def serving(self) -> Iterator[tuple[httpx.Client, psutil.Process, float]]:
        """A client, the broker's process, and how long the start took."""
        began = time.perf_counter()
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "broker", "serve", "--port", "0", "--data-dir", str(self.data)]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
        try:
            while not (ready := re.search(r"Ready: (http://\S+)", self.log.read_text())):
                assert process.poll() is None, self.log.read_text()
                time.sleep(0.02)
            took = time.perf_counter() - began
            with httpx.Client(base_url=ready[1], timeout=120) as client:
                yield client, psutil.Process(process.pid), took
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)

    def fill(self, topics: int, fan: int) -> float:
        """Copies of the one topic and its subscription.  Returns seconds."""
        began = time.perf_counter()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SET statement_timeout = 0")
            for table, series in (
                ("topics", "generate_series(2, %(topics)s) AS n"),
                ("shards", "topics AS t"),
                ("subscriptions", "generate_series(1, %(topics)s) AS n, generate_series(1, %(fan)s) AS k"),
                ("cursors", "subscriptions AS b JOIN shards AS s USING (topic_id)"),
            ):
                self._copy(connection, table, series, topics=topics, fan=fan)
            connection.execute("VACUUM ANALYZE")
        return time.perf_counter() - began

    def _copy(self, connection: psycopg.Connection[Any], table: str, series: str, **counts: int) -> None:
        values = {
            "topics": {"name": _NAMES["topics"]},
            "shards": {"topic_id": "t.topic_id"},
            "subscriptions": {
                "name": _NAMES["subscriptions"],
                "topic": _NAMES["topics"],
                "topic_id": f"(SELECT topic_id FROM topics WHERE name = {_NAMES['topics']})",
            },
            "cursors": {"subscription_id": "b.subscription_id", "shard_id": "s.shard_id"},
        }[table]
        columns = [
            name
            for (name,) in connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_schema = 'broker'"
                " AND table_name = %s AND is_identity = 'NO'",
                [table],
            )
        ]
        chosen = ", ".join(values.get(name, f"model.{name}") for name in columns)
        where = {"shards": "t.topic_id <> model.topic_id", "cursors": "b.subscription_id <> model.subscription_id"}
        query = (
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen} "
            f"FROM (SELECT * FROM {table} LIMIT 1) AS model, {series} WHERE {where.get(table, 'true')}"
        )
        connection.execute(query.encode(), {**counts, "projects": _PROJECTS})


def _cpu(top: psutil.Process) -> dict[str, float]:
    used: dict[str, float] = {}
    for each in [top, *top.children(recursive=True)]:
        kind = "postgres" if "postgres" in each.name() else "python"
        times = each.cpu_times()
        used[kind] = used.get(kind, 0.0) + times.user + times.system
    return used


def _memory(top: psutil.Process) -> float:
    """Of the broker's processes, in MB."""
    found = [top, *top.children(recursive=True)]
    return float(sum(each.memory_info().rss for each in found if "postgres" not in each.name())) / 1e6


def _percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"{1e3 * ordered[len(ordered) // 2]:.2f} / {1e3 * ordered[int(len(ordered) * 0.99)]:.2f} ms"


def _timed(client: httpx.Client, method: str, path: str, body: Any = None) -> tuple[float, httpx.Response]:
    began = time.perf_counter()
    answer = client.request(method, path, content=None if body is None else json.dumps(body))
    took = time.perf_counter() - began
    assert answer.status_code == 200, (path, answer.text[:300])
    return took, answer


def measure(place: Place, topics: int, fan: int) -> dict[str, str]:
    """Of a place that has that many."""
    found: dict[str, str] = {}
    with (place.data / "postgres" / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"log_min_duration_statement = '{_SLOW}'\n")
    with place.serving() as (client, process, took):
        found["start"] = f"{took:.2f} s"
        found["memory at the start"] = f"{_memory(process):.0f} MB"
        with psycopg.connect(place.url) as connection:
            row = connection.execute("SELECT pg_database_size(current_database()) / 1000000").fetchone()
        found["database"] = f"{row[0] if row else 0} MB"
        numbers = [random.Random(1).randint(1, topics) for _ in range(_SAMPLES)]
        publish = {"messages": [{"data": "aGVsbG8="}]}
        pull = {"maxMessages": 1, "returnImmediately": True}
        for again in ("", ", again"):
            took_each = [
                _timed(client, "POST", f"/v1/projects/project-{n % _PROJECTS}/topics/topic-{n}:publish", publish)[0]
                for n in numbers
            ]
            found[f"lone publish{again}, p50 / p99"] = _percentiles(took_each)
        for again in ("", ", again"):
            names = [f"/v1/projects/project-{n % _PROJECTS}/subscriptions/sub-{n}-1" for n in numbers]
            took_each = [_timed(client, "POST", f"{name}:pull", pull)[0] for name in names]
            found[f"pull of one{again}, p50 / p99"] = _percentiles(took_each)
        _replica_reads(client, found)
        before = _cpu(process)
        time.sleep(_IDLE_SECONDS)
        after = _cpu(process)
        for kind in after:
            share = (after[kind] - before.get(kind, 0)) / _IDLE_SECONDS
            found[f"{kind}, idle"] = f"{100 * share:.1f} % of a processor"
        found["memory at the end"] = f"{_memory(process):.0f} MB"
    slow = re.findall(r"duration: ([\d.]+) ms\s+(.*)", (place.data / "postgres.log").read_text(errors="replace"))
    found[f"statements above {_SLOW}"] = str(len(slow))
    for milliseconds, statement in slow[:20]:
        print(f"    {milliseconds} ms  {statement[:200]}")
    return found


def _replica_reads(client: httpx.Client, found: dict[str, str]) -> None:
    for words, path in (
        ("list a page of 100 topics", "/v1/projects/project-1/topics?pageSize=100"),
        ("list a page of 1,000 subscriptions", "/v1/projects/project-1/subscriptions?pageSize=1000"),
        ("the lag of a project, a page of 100", "/v1/projects/project-1/lag?pageSize=100"),
        ("scrape of metrics, first", "/metrics"),
        ("scrape of metrics, second", "/metrics"),
    ):
        try:
            took, answer = _timed(client, "GET", path)
            found[words] = f"{took * 1e3:.0f} ms, {len(answer.content) / 1e3:,.0f} kB"
        except (AssertionError, httpx.HTTPError) as error:
            found[words] = f"{type(error).__name__} {str(error)[:100]}"


def main() -> None:
    """Measure few and many, and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--fan", type=int, default=10)
    options = parser.parse_args()
    columns = []
    for topics in (100, options.topics):
        directory = Path(tempfile.mkdtemp(prefix="pubsub-bench-"))
        directory.chmod(0o755)
        try:
            place = Place(directory)
            with place.serving() as (client, _, _):
                _timed(client, "PUT", "/v1/projects/project-1/topics/topic-1", {})
                body = {"topic": "projects/project-1/topics/topic-1"}
                _timed(client, "PUT", "/v1/projects/project-1/subscriptions/model", body)
                print(f"{topics:,} topics: filled in {place.fill(topics, options.fan):.0f} s", flush=True)
            columns.append(measure(place, topics, options.fan))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    for words in columns[-1]:
        print(f"| {words} | {columns[0].get(words, '')} | {columns[1].get(words, '')} |")


if __name__ == "__main__":
    main()
