"""Processes say which schema they know: secrets are encrypted once none runs that could not read them.

Locks: processes, exclusively, for a moment (no rewrite); a heartbeat waits.
"""

from alembic import op

revision = "0006_since_0001"
down_revision = "0005_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE processes ADD COLUMN version text")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
