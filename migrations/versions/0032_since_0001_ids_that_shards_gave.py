"""The last number that a shard gave to a message which waits for its time.

Locks: `shards` for a moment, as any new column with a constant default does.
"""

from alembic import op

revision = "0032_since_0001"
down_revision = "0031_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # domain/message_id.py: these numbers begin where no sequence of a log comes to.
    op.execute("ALTER TABLE shards ADD COLUMN last_id_seq bigint NOT NULL DEFAULT 500000000000000")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
