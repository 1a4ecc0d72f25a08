"""In how many of a topic's shards its ordering keys are, if it got more later.

Locks: `topics` for a moment, as any new column does.
"""

from alembic import op

revision = "0035_since_0001"
down_revision = "0034_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE topics ADD COLUMN key_shards integer")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
