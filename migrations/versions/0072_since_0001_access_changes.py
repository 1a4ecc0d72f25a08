"""Which project each change of access was in; and which entries of the audit log are of changes.

Locks: `audit_entries` for a moment, as any new column with a constant default does.
"""

from alembic import op

revision = "0072_since_0001"
down_revision = "0071_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    """
    CREATE TABLE access_changes (
        version bigint,
        project text,
        credentials boolean NOT NULL,
        PRIMARY KEY (version, project)
    )
    """,
    "ALTER TABLE audit_entries ADD COLUMN is_change boolean NOT NULL DEFAULT true",
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
