"""Where a subscription began in each shard: what was published before it was never its own.

Locks: `cursors` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0012_since_0001"
down_revision = "0011_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE cursors ADD COLUMN first_seq bigint")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
