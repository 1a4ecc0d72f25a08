"""Since when messages are pushed to the endpoint that they are pushed to now.

Locks: the table of subscriptions, for a moment; nothing is rewritten.
"""

from alembic import op

revision = "0049_since_0001"
down_revision = "0048_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE subscriptions ADD COLUMN endpoint_set_at timestamptz")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
