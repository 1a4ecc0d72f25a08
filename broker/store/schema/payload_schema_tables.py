"""The tables of schemas of messages (A11).  They are a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Column, DateTime, Identity, LargeBinary, Table, Text, UniqueConstraint

from broker.store.schema.tables import metadata

# "payload" apart from the schema of the database.
payload_schemas = Table(
    "payload_schemas",
    metadata,
    Column("schema_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text(collation="C"), nullable=False, unique=True),
    Column("type", Text, nullable=False),
    # What a commit is asked for; null: what Google asks for.
    Column("compatibility", Text),
)

# A later revision has a higher number.
payload_schema_revisions = Table(
    "payload_schema_revisions",
    metadata,
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    Column("schema_id", BigInteger, nullable=False),
    Column("revision_id", Text, nullable=False),
    Column("definition", Text, nullable=False),
    # Of protobuf's: a FileDescriptorSet, and the name of the message in it.
    Column("compiled", LargeBinary),
    Column("root_message", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
    UniqueConstraint("schema_id", "revision_id"),
)
