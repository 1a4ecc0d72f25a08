"""After which age what is not urgent takes turns, or by which weights levels share.

Locks: `topics` for a moment, as any new column does.
"""

from alembic import op

revision = "0052_since_0001"
down_revision = "0051_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE topics ADD COLUMN priority_age interval, ADD COLUMN priority_weights integer[]")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
