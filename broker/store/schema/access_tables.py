"""The tables of access: who may show what.  They are a part of the metadata of tables.py."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
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

# One row.  `version` is raised by whatever changes a credential or a policy, in the same transaction; `credentials`
# is the version at which a credential changed last.
access_version = Table(
    "access_version",
    metadata,
    Column("only_row", Boolean, CheckConstraint("only_row"), primary_key=True, server_default=text("true")),
    Column("version", BigInteger, nullable=False),
    Column("credentials", BigInteger, nullable=False),
)

# What changed with each of the newest versions: `project` is "projects/p", or empty if all projects are affected;
# `credentials`: a credential changed.  A version without rows may have changed anything.
access_changes = Table(
    "access_changes",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("project", Text, primary_key=True),
    Column("credentials", Boolean, nullable=False),
)

service_accounts = Table(
    "service_accounts",
    metadata,
    Column("email", Text, primary_key=True),
    Column("project", Text, nullable=False),  # "projects/p"
    Column("unique_id", Text, nullable=False, unique=True),
    Column("display_name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index("service_accounts_project_idx", "project", "email"),
)

# Of a key only the public half is kept (PEM).
service_account_keys = Table(
    "service_account_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("email", Text, ForeignKey("service_accounts.email", ondelete="CASCADE"), nullable=False),
    Column("public_key", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index("service_account_keys_email_idx", "email", "key_id"),
)

# `digest`: SHA-256 of the key, which has 256 random bits of its own.  `resources`: those that it is restricted to;
# empty: its project.
api_keys = Table(
    "api_keys",
    metadata,
    Column("name", Text, primary_key=True),  # "projects/p/apiKeys/…"
    Column("display_name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("roles", ARRAY(Text), nullable=False),
    Column("resources", ARRAY(Text), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

access_token_keys = Table(
    "access_token_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

# Who has which roles on a resource and all below it; `resource` is its name, "projects/p" and so on, and empty for
# what is above projects.  `bindings`: [{"role": …, "members": […]}].
policies = Table(
    "policies",
    metadata,
    Column("resource", Text(collation="C"), primary_key=True),
    Column("bindings", JSONB, nullable=False),
    Column("etag", LargeBinary, nullable=False),
)

custom_roles = Table(
    "custom_roles",
    metadata,
    Column("name", Text(collation="C"), primary_key=True),  # "projects/p/roles/…"
    Column("title", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("stage", Text, nullable=False),
    Column("permissions", ARRAY(Text), nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("etag", LargeBinary, nullable=False),
)

# Who did what, and how often (`times`); `project` is empty where the resource is in none.  `is_change`: the call
# changed something, so that denials may not displace this entry.
audit_entries = Table(
    "audit_entries",
    metadata,
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    Column("project", Text, nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
    Column("times", Integer, nullable=False),
    Column("method", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("credential", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("permission", Text, nullable=False),
    Column("is_change", Boolean, nullable=False, server_default=text("true")),
    Index("audit_entries_project_idx", "project", "number"),
    Index("audit_entries_time_idx", "time"),
)
