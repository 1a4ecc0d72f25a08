"""The table of long work (G1).  It is a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Index, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from broker.store.schema.tables import metadata

# Long work, "projects/p/operations/…" (domain/operation.py).  `progress` is where it goes on, `counts` what became
# of what it has met: a step changes both in the transaction in which it works, and takes the row's lock for it.
operations = Table(
    "operations",
    metadata,
    Column("name", Text(collation="C"), primary_key=True),
    Column("project", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("started_by", Text, nullable=False),
    Column("request", JSONB, nullable=False),
    Column("progress", JSONB, nullable=False),
    Column("counts", JSONB, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("is_estimate", Boolean, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("next_step_at", DateTime(timezone=True), nullable=False),
    Column("ended_at", DateTime(timezone=True)),
    Column("error_code", Text),
    Column("error_message", Text),
    Index("operations_next_step_idx", "next_step_at", postgresql_where=text("ended_at IS NULL")),
    Index("operations_ended_idx", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
)
