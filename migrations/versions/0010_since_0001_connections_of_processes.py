"""Processes say how many connections projects have to them: a quota of connections holds for all together.

Locks: processes, exclusively, for a moment (no rewrite); a heartbeat waits.
"""

from alembic import op

revision = "0010_since_0001"
down_revision = "0009_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE processes ADD COLUMN connections jsonb")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
