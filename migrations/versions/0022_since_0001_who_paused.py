"""Since when a subscription is paused, and by whom.

Locks: `push_states` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0022_since_0001"
down_revision = "0021_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE push_states ADD COLUMN paused_at timestamptz, ADD COLUMN paused_by text")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
