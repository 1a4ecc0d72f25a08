"""Which flush gave out the last sequences of a shard that were given out on a condition.

Locks: `shards` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0040_since_0001"
down_revision = "0039_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE shards ADD COLUMN last_flush bigint")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
