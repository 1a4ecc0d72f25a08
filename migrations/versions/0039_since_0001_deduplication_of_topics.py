"""For how long repeats of a topic's messages are known, and whether by content.

Locks: `topics` for a moment, as any new column with a constant default does.
"""

from alembic import op

revision = "0039_since_0001"
down_revision = "0038_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE topics ADD COLUMN dedup_window interval, "
        "ADD COLUMN dedup_content boolean NOT NULL DEFAULT false"
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
