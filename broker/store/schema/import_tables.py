"""The table of what was imported (G2).  It is a part of the metadata of tables.py."""

from sqlalchemy import BigInteger, Column, DateTime, Index, LargeBinary, PrimaryKeyConstraint, Table, Text

from broker.store.schema.tables import metadata

# A part of an import, by its number: written in the transaction that stores its messages, so that a part that is
# sent again is known.  `digest`: SHA-256 of what was sent.
imported_parts = Table(
    "imported_parts",
    metadata,
    Column("topic_id", BigInteger, nullable=False),
    Column("import_id", Text(collation="C"), nullable=False),
    Column("part", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("message_count", BigInteger, nullable=False),
    Column("imported_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("topic_id", "import_id", "part"),
    Index("imported_parts_time_idx", "imported_at"),
)
