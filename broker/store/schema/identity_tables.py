"""The table of what repeats of messages are known by (J5).  It is a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Column, DateTime, Index, Table, Uuid

from broker.store.schema.tables import metadata

# `digest` of a message's identity (domain/deduplication.py), and what its id is made of.  One may have several
# rows: the newest counts.  Partitions go as a whole when no topic's window reaches back so far.
message_identities = Table(
    "message_identities",
    metadata,
    Column("shard_id", BigInteger, nullable=False),
    Column("digest", Uuid, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("published_at", DateTime(timezone=True), nullable=False),
    Index("message_identities_digest_idx", "shard_id", "digest"),
    postgresql_partition_by="RANGE (published_at)",
)
