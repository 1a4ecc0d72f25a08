"""Why publishes to a topic are refused, since when, and who wants it; null: they are not.

Locks: `topics` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0024_since_0001"
down_revision = "0023_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE topics ADD COLUMN frozen jsonb")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
