"""A backlog of any size, and subscriptions in any state on it, put straight into the broker's PostgreSQL.

Publishing ten million messages would take minutes and pulling them into a state longer; the tables are filled with
what the broker would have written.  Sequence n was published `STEP` after n - 1, so a sequence says its time.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg

from benchmarks.wire import LoadFailed

PER_PARTITION = 1_000_000  # messages; about 250 MB with their indexes
WIDTH = timedelta(minutes=10)  # of a partition
STEP = WIDTH / PER_PARTITION
KEYS = 100_000  # ordering keys
FREE_EVERY = 1_000  # every so many messages one has a key of its own ("free-…")
MATCH_EVERY = 100  # has the attribute "hundredth"
RARE_EVERY = 1_000_000  # has the attribute "rare", as has the last message

_FILL = """
INSERT INTO {partition} (shard_id, publish_time, last_seq, count, size, ordering_key, attributes, data)
SELECT %(shard_id)s, %(start)s + (seq - %(first)s) * %(step)s, seq, 1, 75 + octet_length(attributes::text),
       CASE WHEN seq %% %(free_every)s = 0 THEN 'free-' || seq ELSE 'key-' || seq %% %(keys)s END,
       ARRAY[attributes], ARRAY[convert_to(rpad(seq::text, 75, '.'), 'UTF8')]
FROM generate_series(%(first)s::int8, %(last)s::int8) AS seq
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN seq %% %(rare_every)s = 0 OR seq = %(size)s THEN '{{"rare": "yes", "hundredth": "yes"}}'::jsonb
        WHEN seq %% %(match_every)s = 0 THEN '{{"hundredth": "yes"}}'
        ELSE '{{"kind": "other"}}'
    END AS attributes
) AS a
"""
_PLACE = """
UPDATE cursors
SET next_publish_time = %(start)s + (%(seq)s - 1) * %(step)s, next_seq = %(seq)s,
    due_floor = now() - interval '1 hour'
WHERE subscription_id = %(subscription_id)s
"""
_OUT = """
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at, seqs, open,
    first_publish_time, last_publish_time
)
SELECT %(shard_id)s, %(subscription_id)s, first, 0, 'delivering', 1, now() + %(due_in)s, now(),
       int8multirange(int8range(first, first + %(size)s)), repeat('1', %(size)s)::varbit,
       %(start)s + (first - 1) * %(step)s, %(start)s + (first + %(size)s - 2) * %(step)s
FROM generate_series(1::int8, %(count)s::int8, %(size)s) AS first
"""
_HELD = """
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at, seqs, open,
    first_publish_time, last_publish_time, ordering_key, out_count, attempt_numbers, waiting
)
SELECT %(shard_id)s, %(subscription_id)s, seq, 0, 'delivering', 1, now() + interval '10 minutes', now(),
       int8multirange(int8range(seq, seq + 1)), B'1', time, time, 'key-' || seq %% %(keys)s, 1, '{1}',
       int8multirange(int8range(seq + 1, NULL))
FROM generate_series(1::int8, %(count)s::int8) AS seq
CROSS JOIN LATERAL (SELECT %(start)s + (seq - 1) * %(step)s AS time) AS t
WHERE seq %% %(free_every)s <> 0
"""
_SETTLED = """
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at, seqs, open,
    first_publish_time, last_publish_time, ordering_key, out_count, attempt_numbers, waiting
)
SELECT %(shard_id)s, %(subscription_id)s, seq, 0, 'pending', 0, now() - interval '1 second', now(), '{}', '',
       time, time, 'key-' || seq %% %(keys)s, 0, '{}', int8multirange(int8range(seq, NULL))
FROM generate_series(1::int8, %(count)s::int8) AS seq
CROSS JOIN LATERAL (SELECT %(start)s + (seq - 1) * %(step)s AS time) AS t
WHERE seq %% %(free_every)s <> 0
"""
_GIVEN_UP = """
INSERT INTO dead_letters (
    shard_id, publish_time, seq, source_shard_id, source_seq, source_publish_time, source_topic, subscription_id,
    subscription, delivery_attempts, reason, fingerprint
)
SELECT %(shard_id)s, %(start)s + (seq - 1) * %(step)s, seq, %(shard_id)s, seq, %(start)s + (seq - 1) * %(step)s,
       %(topic)s, %(subscription_id)s, %(subscription)s, 5, 'push 503', left(md5((number / 2)::text), 16)
FROM generate_series(1::int8, %(count)s) AS number
CROSS JOIN LATERAL (SELECT number * %(every)s AS seq) AS s
"""
_MAX_GIVEN_UP = 100_000


class Backlog:
    """The messages of one topic, and what its subscriptions have of them.  Sequences run from 1 to `size`."""

    def __init__(self, connection: "psycopg.Connection[tuple[object, ...]]", topic: str, size: int) -> None:
        self._connection = connection
        self.topic, self.size = topic, size
        self._start = datetime.now(UTC)
        self._shard_id = self._one(
            "SELECT shard_id FROM shards JOIN topics USING (topic_id) WHERE name = %s", topic
        )

    @property
    def keys(self) -> int:
        """How many ordering keys there are, but for those of one message."""
        return min(KEYS, self.size)

    def publish_time(self, seq: int) -> datetime:
        return self._start + (seq - 1) * STEP

    def message_id(self, seq: int) -> str:
        return str(self._shard_id * 10**15 + seq)

    def fill(self) -> None:
        """Put the messages before everything that the log has so far, in partitions of their own."""
        count = -(-self.size // PER_PARTITION)
        self._start = _first_partition(self._connection) - count * WIDTH
        # From now on every subscription of the topic wants it all, so the janitor leaves it alone.
        self._run("UPDATE shards SET head = %(size)s WHERE shard_id = %(shard_id)s", size=self.size)
        self._run(
            "UPDATE cursors SET next_publish_time = %(start)s, next_seq = 1 WHERE shard_id = %(shard_id)s",
        )
        for number in range(count):
            with self._connection.transaction():
                self._make_partition(number)
        self._run("VACUUM (ANALYZE) message_batches")  # as autovacuum does sooner or later

    def _make_partition(self, number: int) -> None:
        """Filled before it is attached: its indexes are then built at once."""
        start = self._start + number * WIDTH
        first = number * PER_PARTITION + 1
        name, bounds = f"messages_{start:%Y%m%d_%H%M%S}", {"start": start, "end": start + WIDTH}
        check = "publish_time >= '{start}' AND publish_time < '{end}'".format(**bounds)
        self._run(
            f"CREATE TABLE {name} (LIKE message_batches INCLUDING DEFAULTS INCLUDING CONSTRAINTS, CHECK ({check}))"
        )
        self._run(
            _FILL.format(partition=name),
            start=start,
            first=first,
            last=min(first + PER_PARTITION - 1, self.size),
            size=self.size,
            free_every=FREE_EVERY,
            match_every=MATCH_EVERY,
            rare_every=RARE_EVERY,
        )
        values = "FOR VALUES FROM ('{start}') TO ('{end}')".format(**bounds)
        self._run(f"ALTER TABLE message_batches ATTACH PARTITION {name} {values}")

    def _tidy_attempts(self) -> None:
        self._run("VACUUM (ANALYZE) delivery_attempts")

    # --- the state of a subscription ---------------------------------------------------------------------

    def place(self, subscription: str, seq: int, *, forget: str = "") -> None:
        """Move a cursor to just before a sequence; nothing is out then (or nothing of the keys like `forget`)."""
        where = self._subscription(subscription)
        self._run(
            "DELETE FROM delivery_attempts WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s"
            + (" AND ordering_key LIKE %(forget)s" if forget else ""),
            **where,
            forget=forget,
        )
        self._run(_PLACE, **where, seq=seq)

    def put_out(self, subscription: str, count: int, *, size: int, due_in: timedelta) -> None:
        """The first `count` messages are out, in responses of `size`; the cursor is behind them."""
        self.place(subscription, count + 1)
        self._run(_OUT, **self._subscription(subscription), count=count, size=size, due_in=due_in)
        self._tidy_attempts()

    def hold_keys(self, subscription: str) -> None:
        """Every key has its first message out; the cursor is behind those."""
        self.place(subscription, self.keys + 1)
        self._run(_HELD, **self._subscription(subscription), count=self.keys, free_every=FREE_EVERY)
        self._tidy_attempts()

    def settle_keys(self, subscription: str) -> None:
        """Every key is due, all its messages wait in the log, the cursor has passed all."""
        self.place(subscription, self.size + 1)
        self._run(_SETTLED, **self._subscription(subscription), count=self.keys, free_every=FREE_EVERY)
        self._tidy_attempts()

    def give_up(self, subscription: str) -> None:
        """Makes up to _MAX_GIVEN_UP of the messages dead letters; two at a time have the same cause."""
        count = min(self.size, _MAX_GIVEN_UP)
        self._run(
            _GIVEN_UP,
            **self._subscription(subscription),
            topic=self.topic,
            subscription=subscription,
            count=count,
            every=self.size // count,
        )
        self._run("VACUUM (ANALYZE) dead_letters")

    def rows_out(self, subscription: str) -> int:
        query = "SELECT count(*) FROM delivery_attempts WHERE subscription_id = %s"
        return self._one(query, self._subscription(subscription)["subscription_id"])

    def _subscription(self, name: str) -> dict[str, int]:
        return {"subscription_id": self._one("SELECT subscription_id FROM subscriptions WHERE name = %s", name)}

    def _one(self, query: str, *values: object) -> int:
        row = self._connection.execute(query.encode(), values).fetchone()
        if row is None:
            raise LoadFailed(f"the database does not know {values}")
        found = row[0]
        assert isinstance(found, int)
        return found

    def _run(self, statement: str, **parameters: object) -> None:
        common = {"shard_id": self._shard_id, "start": self._start, "step": STEP, "keys": KEYS}
        needed = {name: v for name, v in (common | parameters).items() if f"%({name})s" in statement}
        self._connection.execute(statement.encode(), needed or None)


def _first_partition(connection: "psycopg.Connection[tuple[object, ...]]") -> datetime:
    query = b"SELECT min(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'message_batches'::regclass"
    [name] = connection.execute(query).fetchone() or ("",)
    digits = re.fullmatch(r"messages_(\d{8}_\d{6})", str(name))
    if digits is None:
        raise LoadFailed(f"no partition, or one of an unknown name: {name}")
    return datetime.strptime(digits[1], "%Y%m%d_%H%M%S").replace(tzinfo=UTC)


@contextmanager
def database_connection(url: str) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    """A connection in autocommit mode to the broker's own database.  Raises LoadFailed."""
    try:
        with psycopg.connect(
            url, autocommit=True, prepare_threshold=None, options="-c timezone=UTC -c search_path=broker"
        ) as connection:
            yield connection
    except psycopg.Error as error:
        raise LoadFailed(f"PostgreSQL: {error}") from error
