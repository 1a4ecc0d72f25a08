"""How a dead letter was resolved: by whom, when, and as which message it came back, if it was edited.

Locks: `dead_letters` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0059_since_0001"
down_revision = "0058_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE dead_letters ADD COLUMN resolution text, ADD COLUMN resolved_at timestamptz, "
        "ADD COLUMN resolved_by text, ADD COLUMN successor_shard bigint, ADD COLUMN successor_seq bigint"
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
