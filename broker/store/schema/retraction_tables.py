"""What is known of messages that were retracted (J6).  A part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Index, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from broker.store.schema.tables import metadata

# Nothing on the way of a message reads it: the log has the message no more (docs/decisions/0048).  A row for each,
# as long as its partition would be there or a dead letter of it may come back.  `seq`: where it stood; null: it was
# still to come.  `standings`: the subscriptions that it had got to, by how (domain/retraction.py).
retracted_messages = Table(
    "retracted_messages",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("id_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger),
    Column("publish_time", DateTime(timezone=True), nullable=False),
    Column("retracted_at", DateTime(timezone=True), nullable=False),
    Column("retracted_by", Text, nullable=False),
    Column("head", BigInteger, nullable=False),
    Column("standings", JSONB(none_as_null=True)),
    Column("replacement_shard_id", BigInteger),
    Column("replacement_id_seq", BigInteger),
    Column("cancelled", Boolean),  # before its time came; null: it was retracted
    Index("retracted_messages_seq_idx", "shard_id", "seq"),
    Index("retracted_messages_publish_time_idx", "publish_time"),
)
