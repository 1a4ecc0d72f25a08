"""Messages that are to come later: how late they come, and what those that wait cost others."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from benchmarks.backlog import database_connection
from benchmarks.bench import Bench, Place, call_each, fresh_place, say
from benchmarks.generators import run_loads
from benchmarks.latency import delay_rows
from benchmarks.load_spec import Spec
from benchmarks.report import Row
from benchmarks.schemas import beside_others
from benchmarks.servers import Broker, Server
from benchmarks.wire import LoadFailed, build_request

_RATE = 1_000  # messages a second
_AHEAD_SECONDS = 2.0  # that each message waits
_CONNECTIONS = 32
_GRACE_SECONDS = 30.0
_WAITING = 1_000_000
_WAITING_TOPIC = "projects/waiting/topics/waiting"
_DELAY = {"extensions": {"delay": True}}
# Over the days from tomorrow on, so that none comes meanwhile.
_FILL = """
WITH counted AS (
    UPDATE shards SET last_id_seq = last_id_seq + %(count)s
    WHERE shard_id = (SELECT shard_id FROM shards JOIN topics USING (topic_id) WHERE name = %(topic)s LIMIT 1)
    RETURNING shard_id, last_id_seq - %(count)s AS before
)
INSERT INTO scheduled_messages (shard_id, id_seq, due_at, accepted_at, size, attributes, data)
SELECT c.shard_id, c.before + n, now() + interval '1 day' + n * interval '2 days' / %(count)s, now(), 100,
       '{"broker-delay": "86400s"}', decode(repeat('78', 100), 'hex')
FROM counted AS c, generate_series(1, %(count)s) AS n
"""


def delay(bench: Bench) -> list[Row]:
    """The lateness of 1,000 messages a second; then plain topics beside a million that wait, and beside none."""
    return [*_lateness(bench), *_beside_waiting(bench)]


def _lateness(bench: Bench) -> list[Row]:
    late: list[float] = []
    failures: dict[str, str] = {}
    try:
        bench.use(bench.broker)
        for round_ in range(bench.options.rounds + 1):
            with _delayed_place(bench.broker) as place:
                taken = _round(bench.broker, place, bench.options.seconds)
            say(f"{_RATE:,} delayed messages a second: {len(taken):,} came")
            late += taken if round_ else []
    except LoadFailed as error:
        say(f"delay: FAILED: {error}")
        failures["broker"] = str(error)
    name = f"due → waiting pull, {_RATE:,} delayed publishes a second"
    rows = delay_rows(name, {"broker": late}, failures)
    for row in rows:
        row.note = f"{row.note}; each had waited {_AHEAD_SECONDS:g} s"
    return rows


def _round(server: Server, place: Place, seconds: float) -> list[float]:
    """How many seconds after its time each message was there.  Raises LoadFailed."""
    where = Spec(role="", host=server.host, port=server.port, topic=place.topic, seconds=seconds)
    publish = replace(where, role="delayed_publish", rate=_RATE, after=_AHEAD_SECONDS, connections=_CONNECTIONS)
    drain = replace(
        where,
        role="delayed_drain",
        subscription=place.subscriptions[0],
        count=int(_RATE * seconds),
        limit_seconds=seconds + _AHEAD_SECONDS + _GRACE_SECONDS,
    )
    return run_loads([publish, drain])[1].pull_seconds


@contextmanager
def _delayed_place(server: Server) -> Iterator[Place]:
    with fresh_place(server) as place:
        body = {"topic": {"name": place.topic, **_DELAY}, "updateMask": "extensions"}
        call_each(server, [build_request("PATCH", f"/v1/{place.topic}", json.dumps(body).encode())])
        yield place


def _beside_waiting(bench: Bench) -> list[Row]:
    count = min(_WAITING, bench.options.claims_backlog)
    return beside_others(bench, f"beside {count:,} that wait", partial(_make_waiting, count))


def _make_waiting(count: int, server: Server, carrying: bool) -> None:
    """Straight into PostgreSQL, on a topic that nobody else uses; both brokers have the topic."""
    assert isinstance(server, Broker)
    call_each(server, [build_request("PUT", f"/v1/{_WAITING_TOPIC}", json.dumps(_DELAY).encode())])
    if not carrying:
        return
    say(f"putting {count:,} messages where they wait for their time")
    with database_connection(server.database_url) as database:
        database.execute(_FILL, {"count": count, "topic": _WAITING_TOPIC})
        database.execute("VACUUM (ANALYZE) scheduled_messages")  # as autovacuum does sooner or later
