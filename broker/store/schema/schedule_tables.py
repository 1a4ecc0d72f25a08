"""The tables of messages that are to come later (J1).  They are a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Column, DateTime, Index, Integer, LargeBinary, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from broker.store.schema.tables import metadata

# Messages that wait for `due_at`.  Who deletes a row delivers or cancels the message: whoever appends it to the log
# does both in one transaction.  `id_seq` is what its id is made of, now and in the log; `ttl`, for how many
# microseconds it is delivered once it is there (null: for as long as it is retained).
scheduled_messages = Table(
    "scheduled_messages",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("id_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("due_at", DateTime(timezone=True), nullable=False),
    Column("accepted_at", DateTime(timezone=True), nullable=False),
    Column("size", Integer, nullable=False),
    Column("ordering_key", Text),
    Column("attributes", JSONB(none_as_null=True)),
    Column("data", LargeBinary, nullable=False),
    Column("ttl", BigInteger),
    Index("scheduled_messages_due_idx", "shard_id", "due_at", "id_seq"),
)

# The places in the log of those whose time has come: a row for each, as long as the log has it, and then (from
# `gone_at` on) as long as deliveries are recorded.
scheduled_ids = Table(
    "scheduled_ids",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("id_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("publish_time", DateTime(timezone=True), nullable=False),
    Index("scheduled_ids_seq_idx", "shard_id", "seq"),
    Column("gone_at", DateTime(timezone=True)),
    Index("scheduled_ids_in_log_idx", "publish_time", postgresql_where=text("gone_at IS NULL")),
    Index("scheduled_ids_gone_idx", "gone_at", postgresql_where=text("gone_at IS NOT NULL")),
)
