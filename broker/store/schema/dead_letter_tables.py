"""What is known of dead letters (G2).  A part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Column, DateTime, Index, Integer, Table, Text

from broker.store.schema.tables import metadata

# Where a dead letter stands (shard_id, publish_time, seq), where its message was, and why that was given up
# (domain/dead_letter.py).  `resolution` (null: nobody has resolved it) and what follows: domain/letter_standing.py.
# A row that is not resolved goes with its letter, one that is no sooner than KEPT after it.
dead_letters = Table(
    "dead_letters",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("publish_time", DateTime(timezone=True), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("source_shard_id", BigInteger, nullable=False),
    Column("source_seq", BigInteger, nullable=False),
    Column("source_publish_time", DateTime(timezone=True), nullable=False),
    Column("source_topic", Text, nullable=False),
    Column("subscription_id", BigInteger, nullable=False),
    Column("subscription", Text, nullable=False),
    Column("delivery_attempts", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("resolution", Text),
    Column("resolved_at", DateTime(timezone=True)),
    Column("resolved_by", Text),
    Column("successor_shard", BigInteger),
    Column("successor_seq", BigInteger),
    Index("dead_letters_source_idx", "source_shard_id", "source_seq", "subscription_id"),
    Index("dead_letters_publish_time_idx", "publish_time"),
)
