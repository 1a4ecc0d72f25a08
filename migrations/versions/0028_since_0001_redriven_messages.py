"""Messages that came back from a dead-letter topic: their rows are exempt from the subscription's retention.

Locks: `delivery_attempts` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0028_since_0001"
down_revision = "0027_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE delivery_attempts ADD COLUMN redriven boolean")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
