"""The tables that Citus distributes with the shards, and the additional objects that exist for Citus alone."""

COLUMN = "shard_id"
# All tables with rows of shards; the others are colocated with the first.
TABLES = (
    *("shards", "message_batches", "straggler_batches", "cursors", "delivery_attempts", "delivery_journal"),
    *("snapshot_positions", "snapshot_outstanding", "dead_letters", "message_identities"),
    *("scheduled_messages", "scheduled_ids", "retracted_messages", "delivery_records"),
)

# A table of the coordinator, without rows, that Citus knows (db/citus/two_phases.py).
TWO_PHASES = "two_phases"
