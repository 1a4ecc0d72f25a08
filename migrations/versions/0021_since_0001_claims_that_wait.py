"""Whether a subscription is paused, where its claims look: under the lock of the cursor.

Locks: `cursors` for a moment; a column with a constant default rewrites nothing.
"""

from alembic import op

revision = "0021_since_0001"
down_revision = "0019_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE cursors ADD COLUMN paused boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
