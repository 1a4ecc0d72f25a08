"""The table of the record of deliveries.  It is a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Column, DateTime, Index, LargeBinary, Table, Text

from broker.store.schema.tables import metadata

# Who acknowledged which messages of a bucket of sequences (domain/delivery_record.py), as it was written at
# `recorded_at`, within a second or so.  Nothing on the way of a message reads it, and partitions are dropped whole.
delivery_records = Table(
    "delivery_records",
    metadata,
    Column("shard_id", BigInteger, nullable=False),
    Column("subscription_id", BigInteger, nullable=False),
    Column("bucket", BigInteger, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False),
    Column("principal", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("entries", LargeBinary, nullable=False),
    Index("delivery_records_bucket_idx", "shard_id", "subscription_id", "bucket"),
    postgresql_partition_by="RANGE (recorded_at)",
)
