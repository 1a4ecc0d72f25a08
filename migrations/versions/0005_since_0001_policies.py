"""Policies: who may do what, and custom roles.

Locks: creates only; touches nothing that exists.
"""

from alembic import op

revision = "0005_since_0001"
down_revision = "0004_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    """
    CREATE TABLE policies (
        resource text COLLATE "C" PRIMARY KEY,
        bindings jsonb NOT NULL,
        etag bytea NOT NULL
    )
    """,
    """
    CREATE TABLE custom_roles (
        name text COLLATE "C" PRIMARY KEY,
        title text NOT NULL,
        description text NOT NULL,
        stage text NOT NULL,
        permissions text[] NOT NULL,
        deleted boolean NOT NULL,
        etag bytea NOT NULL
    )
    """,
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
