"""The tables of quotas.  They are a part of the metadata of tables.py."""

from sqlalchemy import Column, DateTime, Double, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from broker.store.schema.tables import metadata

# What was set for a project, "projects/p": {"publishMessages": 100, …}.
project_quotas = Table(
    "project_quotas",
    metadata,
    Column("project", Text(collation="C"), primary_key=True),
    Column("limits", JSONB, nullable=False),
    Column("principal_limits", JSONB, nullable=False),
)

# The buckets that all processes share (domain/quota_bucket.py); `principal` is empty for that of a project.
# `held` is of the time `balanced_at`, and less than 0 in debt; `usage`: a second, lately.  After a crash of the
# server all are full again: not logged, so that no commit here waits for the disk.
quota_buckets = Table(
    "quota_buckets",
    metadata,
    Column("project", Text(collation="C")),
    Column("principal", Text(collation="C")),
    Column("quota", Text(collation="C")),
    Column("rate", Double, nullable=False),
    Column("held", Double, nullable=False),
    Column("usage", Double, nullable=False),
    Column("balanced_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("project", "principal", "quota"),
    prefixes=["UNLOGGED"],
    postgresql_with={"fillfactor": "50"},
)
