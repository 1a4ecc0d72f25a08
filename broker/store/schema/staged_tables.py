"""The tables of what is done in applications' transactions (J7).  They are a part of the metadata of tables.py."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from broker.store.schema.tables import metadata

# A message (of `topic_id`), or acks or nacks (of `subscription_id`), written by the function stage_message or
# stage_acks in a transaction of the user's, `xid`.  Who deletes a row relays it: whoever appends a message to the
# log does both in one transaction.  `name`: of the topic or subscription; `wakes`: the first of its transaction.
staged = Table(
    "staged",
    metadata,
    Column("n", BigInteger, Identity(always=True), primary_key=True),
    Column("xid", BigInteger, nullable=False),
    Column("role", Text, nullable=False),
    Column("staged_at", DateTime(timezone=True), nullable=False),
    Column("wakes", Boolean, nullable=False),
    Column("name", Text, nullable=False),
    Column("topic_id", BigInteger),
    Column("subscription_id", BigInteger),
    Column("size", Integer, nullable=False),
    Column("ordering_key", Text),
    Column("attributes", JSONB(none_as_null=True)),
    Column("data", LargeBinary),
    Column("ack_ids", ARRAY(Text)),
    Column("nack", Boolean, nullable=False, server_default=text("false")),
    Index("staged_xid_idx", "xid", "n"),
)

# Messages that could not be published any more when their transaction had committed, and why; kept for some days.
refused_messages = Table(
    "refused_messages",
    metadata,
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("refused_at", DateTime(timezone=True), nullable=False),
    Column("reason", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("staged_at", DateTime(timezone=True), nullable=False),
    Column("topic", Text, nullable=False),
    Column("ordering_key", Text),
    Column("attributes", JSONB(none_as_null=True)),
    Column("data", LargeBinary, nullable=False),
)

# One row.  Until `awake_until` some broker looks for what is staged by itself, and need not be told; of what has a
# number up to `relayed_to` it has taken all that was committed then; of the projects in `behind` only what has a
# number up to `behind_to`.
relaying = Table(
    "relaying",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true")),
    Column("awake_until", DateTime(timezone=True), nullable=False),
    Column("relayed_to", BigInteger, nullable=False),
    Column("behind", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("behind_to", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("one", name="relaying_one_check"),
)

# Roles of PostgreSQL that may stage for a project, "projects/p".
application_grants = Table(
    "application_grants",
    metadata,
    Column("role", Text, primary_key=True),
    Column("project", Text(collation="C"), primary_key=True),
    Column("granted_at", DateTime(timezone=True), nullable=False),
)
