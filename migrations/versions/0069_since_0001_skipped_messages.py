"""The journal calls what a seek has skipped SKIPPED, as the states of messages do.

Locks: the rows of `delivery_journal` that are about seeks, which nothing else changes.
"""

from alembic import op

revision = "0069_since_0001"
down_revision = "0068_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("UPDATE delivery_journal SET event = 'SKIPPED' WHERE event = 'SEEKED_PAST'")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
