"""Which of their two parts a statement writes to: what is read off its text."""

import pytest

from broker.db.citus.distributed_tables import TABLES
from broker.db.citus.two_phases import _WRITES, Written, parts_written
from broker.db.driver import statements
from broker.db.schema.tables import metadata

SHARDS, CATALOG = 1, 2
_NAMES = [name.removesuffix(".sql") for name in statements._files() if name.endswith(".sql")]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SELECT FROM shards FOR UPDATE SKIP LOCKED", 0),
        ("SELECT FROM topics FOR NO KEY UPDATE OF t", 0),
        ("UPDATE shards SET head = 1", SHARDS),
        ("UPDATE  topics AS t\n SET name = ''", CATALOG),
        ("INSERT INTO cursors VALUES (1) ON CONFLICT (shard_id) DO\nUPDATE SET next_seq = 1", SHARDS),
        ('DELETE FROM ONLY "push_states"', CATALOG),
        ("WITH gone AS (DELETE FROM staged_messages RETURNING *) INSERT INTO dead_letters SELECT FROM gone", 3),
    ],
)
def test_what_is_locked_is_not_written(text: str, parts: int) -> None:
    assert parts_written(text) == parts


def test_each_table_that_a_file_writes_to_is_one() -> None:
    known = {*metadata.tables, "known_shards", "held_claims"}
    assert known.issuperset(TABLES)
    texts = [statements.load(name) for name in _NAMES]
    found = {table for text in texts for table in _WRITES.findall(" ".join(text.split()))}
    assert found <= known
    assert found >= set(TABLES) - {"snapshot_positions", "snapshot_outstanding"}


def test_what_publishes_claims_and_acks_writes_to_shards_alone() -> None:
    """Other hot statements do: of relays, ticks, operations, imports, quotas, events and history."""
    hot = {statements.hot(name) for name in _NAMES if "-- parameters" in statements._read(name)}
    assert {statement.name.decode() for statement in hot if statement.parts_written & CATALOG} == {
        *(
            "take_outbox_messages",
            "take_outbox_acks",
            "refuse_outbox_messages",
            "note_outbox_progress",
            "record_part",
        ),
        *("balance_quotas", "delete_oldest_events", "write_operation"),
        *("find_history_series", "insert_history_points"),
        *("write_schedule", "insert_schedule_tick", "delete_old_schedule_ticks"),
    }


def test_it_is_said_once_a_transaction_when_both_are_written_to() -> None:
    written = Written()
    assert [written.is_to_be_said(parts) for parts in (SHARDS, 0, SHARDS, CATALOG, SHARDS)] == [
        *(False, False, False, True, False)
    ]
    written.forget()
    assert [written.is_to_be_said(parts) for parts in (CATALOG, CATALOG, SHARDS)] == [False, False, True]
