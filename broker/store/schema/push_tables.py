"""The tables of push endpoints (C6).  They are a part of the metadata of tables.py."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Integer,
    Interval,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from broker.store.schema.tables import metadata

# How deliveries to a push subscription's endpoint go, as the process that delivers to it last wrote it down; no row
# means nothing to tell.  `retry_at` before `changed_at`: since then it waits for slots.  Deliveries go by
# `paused_reason` alone; a pull subscription that is paused has a row, too.
push_states = Table(
    "push_states",
    metadata,
    Column("subscription_id", BigInteger, primary_key=True, autoincrement=False),
    Column("breaker", Text, nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    Column("consecutive_failures", Integer, nullable=False),
    # Not "window": that is a word of SQL's.
    Column("window_size", Integer, nullable=False),
    Column("outstanding_requests", Integer, nullable=False),
    Column("retry_at", DateTime(timezone=True)),
    Column("paused_reason", Text, nullable=False, server_default=text("''")),
    Column("paused_at", DateTime(timezone=True)),
    Column("paused_by", Text),
    # The requests that have failed since the last success; null if there are none.
    Column("failing_since", DateTime(timezone=True)),
    Column("failed_requests", BigInteger),
    Column("last_status", Integer),
    Column("last_reason", Text),
    Column("failing_reported", Boolean),
    Column("failing_messages", JSONB),
)

# The last failures of each push subscription.
push_failures = Table(
    "push_failures",
    metadata,
    Column("subscription_id", BigInteger, nullable=False),
    Column("failure_id", BigInteger, Identity(always=True), nullable=False),
    Column("failed_at", DateTime(timezone=True), nullable=False),
    Column("message_id", Text, nullable=False),
    Column("delivery_attempt", Integer, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("status", Integer),
    Column("latency", Interval, nullable=False),
    Column("detail", Text, nullable=False),
    PrimaryKeyConstraint("subscription_id", "failure_id"),
)
