"""The failures of push endpoints since their last success, and the messages that keep failing.

Locks: `push_states` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0065_since_0001"
down_revision = "0063_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE push_states ADD COLUMN failing_since timestamptz, ADD COLUMN failed_requests bigint,"
        " ADD COLUMN last_status integer, ADD COLUMN last_reason text, ADD COLUMN failing_reported boolean,"
        " ADD COLUMN failing_messages jsonb"
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
