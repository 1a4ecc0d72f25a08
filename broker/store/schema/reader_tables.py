"""The table of who reads (F3).  It is a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Column, DateTime, Double, Index, Integer, Table, Text

from broker.store.schema.tables import metadata

# Who pulls and streams (domain/reader.py), as each process (`process_key`) last wrote it down.  Not logged: after a
# crash of the server it is written anew within seconds.
readers = Table(
    "readers",
    metadata,
    Column("process_key", Text, nullable=False),
    Column("subscription_id", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("process", Text, nullable=False),
    Column("client_id", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("since", DateTime(timezone=True), nullable=False),
    Column("seen_at", DateTime(timezone=True), nullable=False),
    Column("outstanding", Integer, nullable=False),
    Column("oldest_since", DateTime(timezone=True)),
    Column("acks_per_second", Double, nullable=False),
    Column("ack_p50", Double),
    Column("ack_p99", Double),
    Index("readers_subscription_idx", "subscription_id"),
    Index("readers_process_idx", "process_key"),
    prefixes=["UNLOGGED"],
)
