"""Whether messages of a subscription that are past their time go to its dead-letter topic.

Locks: `subscriptions` for a moment, as any new column with a constant default does.
"""

from alembic import op

revision = "0050_since_0001"
down_revision = "0049_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE subscriptions ADD COLUMN dead_letter_expired boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
