"""How many levels of urgency a topic's messages have.

Locks: `topics` for a moment, as any new column does.
"""

from alembic import op

revision = "0044_since_0001"
down_revision = "0043_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE topics ADD COLUMN priorities integer")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
