"""The tables of events (F4).  They are a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Column, DateTime, Identity, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from broker.store.schema.tables import metadata

# What was set for a project, "projects/p".  Its dead letters of before `dead_letters_until` have been counted.
project_settings = Table(
    "project_settings",
    metadata,
    Column("project", Text(collation="C"), primary_key=True),
    Column("event_topic", Text, nullable=False),
    Column("dead_letters_until", DateTime(timezone=True), nullable=False),
)

# What is so just now, and was told of (domain/event.py).
event_conditions = Table(
    "event_conditions",
    metadata,
    Column("project", Text(collation="C")),
    Column("kind", Text(collation="C")),
    Column("subject", Text(collation="C")),
    Column("since", DateTime(timezone=True), nullable=False),
    Column("found_at", DateTime(timezone=True), nullable=False),
    Column("amount", BigInteger, nullable=False),
    PrimaryKeyConstraint("project", "kind", "subject"),
)

# Events that are not published yet.
waiting_events = Table(
    "waiting_events",
    metadata,
    Column("event_id", BigInteger, Identity(always=True), primary_key=True),
    Column("project", Text, nullable=False),
    Column("occurred_at", DateTime(timezone=True), nullable=False),
    Column("event", JSONB, nullable=False),
)
