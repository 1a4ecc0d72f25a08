"""Since when the filter of a cursor's subscription is what it is: claims compare it with what they know.

Locks: `cursors` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0071_since_0001"
down_revision = "0069_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE cursors ADD COLUMN filter_changed_at timestamptz")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
