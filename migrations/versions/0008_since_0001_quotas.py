"""Quotas: what was set for projects, and what is left of it.

Locks: creates only; touches nothing that exists.
"""

from alembic import op

revision = "0008_since_0001"
down_revision = "0007_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    """
    CREATE TABLE project_quotas (
        project text COLLATE "C" PRIMARY KEY,
        limits jsonb NOT NULL,
        principal_limits jsonb NOT NULL
    )
    """,
    """
    CREATE UNLOGGED TABLE quota_buckets (
        project text COLLATE "C" NOT NULL,
        principal text COLLATE "C" NOT NULL,
        quota text COLLATE "C" NOT NULL,
        rate double precision NOT NULL,
        held double precision NOT NULL,
        usage double precision NOT NULL,
        balanced_at timestamptz NOT NULL,
        PRIMARY KEY (project, principal, quota)
    ) WITH (fillfactor = 50)
    """,
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
