"""For how many microseconds a message that waits for its time is delivered once it is in the log.

Locks: `scheduled_messages` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0047_since_0001"
down_revision = "0046_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE scheduled_messages ADD COLUMN ttl bigint")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
