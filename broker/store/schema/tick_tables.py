"""The tables of schedules (J2).  They are a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Index, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from broker.store.schema.tables import metadata

# Schedules, "projects/p/schedules/…" (domain/schedule.py).  `next_at`: null while it is paused and once it has
# ended.  A tick appends its message and moves `next_at` in one transaction, which has the row's lock.
schedules = Table(
    "schedules",
    metadata,
    Column("name", Text(collation="C"), primary_key=True),
    Column("definition", JSONB, nullable=False),
    Column("anchor", DateTime(timezone=True), nullable=False),
    Column("next_at", DateTime(timezone=True)),
    Column("paused", Boolean, nullable=False),
    Column("ticks", BigInteger, nullable=False),
    Column("last_outcome", Text),
    Column("created_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Index("schedules_next_idx", "next_at", postgresql_where=text("next_at IS NOT NULL")),
    Index("schedules_topic_idx", text("(definition ->> 'topic')")),
    Index(
        "schedules_project_idx",
        text("split_part(name, '/schedules/', 1)"),
        "next_at",
        postgresql_where=text("next_at IS NOT NULL"),
    ),
)

# What became of the last ticks of each.
schedule_ticks = Table(
    "schedule_ticks",
    metadata,
    Column("schedule", Text(collation="C"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("planned_at", DateTime(timezone=True)),
    Column("ran_at", DateTime(timezone=True), nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message_id", Text, nullable=False),
)
