"""Which of redeliveries and fresh messages gets the odd message of a claim's next even split.

Locks: `cursors` for a moment; a column with a constant default rewrites nothing.
"""

from alembic import op

revision = "0058_since_0001"
down_revision = "0057_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE cursors ADD COLUMN due_first boolean NOT NULL DEFAULT true")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
