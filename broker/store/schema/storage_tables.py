"""The table of measured sizes.  It is a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Table

from broker.store.schema.tables import metadata

# What the broker's tables took when they were measured last, by the limit that brokers were given
# (--database-size-max): those with the same limit pause and resume publishing together.  `is_full`: it is paused.
# After a crash of the server it is measured again: not logged, so that no commit here waits for the disk.
table_sizes = Table(
    "table_sizes",
    metadata,
    Column("max_bytes", BigInteger, primary_key=True, autoincrement=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("is_full", Boolean, nullable=False),
    Column("measured_at", DateTime(timezone=True), nullable=False),
    Column("next_at", DateTime(timezone=True), nullable=False),
    prefixes=["UNLOGGED"],
)
