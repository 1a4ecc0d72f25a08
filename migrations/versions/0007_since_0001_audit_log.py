"""The audit log.

Locks: creates only; touches nothing that exists.
"""

from alembic import op

revision = "0007_since_0001"
down_revision = "0006_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    """
    CREATE TABLE audit_entries (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        project text NOT NULL,
        time timestamptz NOT NULL,
        times integer NOT NULL,
        method text NOT NULL,
        resource text NOT NULL,
        code text NOT NULL,
        principal text NOT NULL,
        credential text NOT NULL,
        address text NOT NULL,
        permission text NOT NULL
    )
    """,
    "CREATE INDEX audit_entries_project_idx ON audit_entries (project, number)",
    "CREATE INDEX audit_entries_time_idx ON audit_entries (time)",
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
