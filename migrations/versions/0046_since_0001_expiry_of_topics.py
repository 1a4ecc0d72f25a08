"""Whether publishers may say for how long messages of a topic are delivered.

Locks: `topics` for a moment, as any new column with a constant default does.
"""

from alembic import op

revision = "0046_since_0001"
down_revision = "0045_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE topics ADD COLUMN expiry boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
