"""How urgent what is in a shard is.

Locks: `shards` for a moment, as any new column does.
"""

from alembic import op

revision = "0045_since_0001"
down_revision = "0044_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE shards ADD COLUMN level integer")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
