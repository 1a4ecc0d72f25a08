"""Which subscriptions' pushes go before the others of their project.

Locks: `subscriptions` for a moment, as any new column does.
"""

from alembic import op

revision = "0056_since_0001"
down_revision = "0055_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE subscriptions ADD COLUMN push_urgent boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
