"""Where the log of a frozen topic ends: a broker of any version fails to take a sequence past it.

Locks: `shards` while its rows are looked at, of which a topic has few: some milliseconds for ten thousand.
"""

from alembic import op

revision = "0023_since_0001"
down_revision = "0022_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE shards ADD COLUMN frozen_at bigint, "
        "ADD CONSTRAINT shards_frozen_check CHECK (head <= frozen_at)"
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
