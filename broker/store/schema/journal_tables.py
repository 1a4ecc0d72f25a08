"""The table of the journal (F3).  It is a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Column, DateTime, Identity, Index, Integer, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects.postgresql import INT8MULTIRANGE

from broker.store.schema.tables import metadata

# What happened to messages of a shard for a subscription (domain/journal.py), each row in the transaction that it
# tells of.  `bucket` is that of all its sequences, or SPAN; `number` is in the order of what happened to any one
# message.
delivery_journal = Table(
    "delivery_journal",
    metadata,
    Column("shard_id", BigInteger, nullable=False),
    Column("subscription_id", BigInteger, nullable=False),
    Column("bucket", BigInteger, nullable=False),
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
    Column("event", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("seqs", INT8MULTIRANGE, nullable=False),
    Column("principal", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("answer", Text, nullable=False),
    PrimaryKeyConstraint("shard_id", "subscription_id", "bucket", "number"),
    Index("delivery_journal_time_idx", "subscription_id", "time"),
    Index("delivery_journal_number_idx", "subscription_id", "number"),
)
