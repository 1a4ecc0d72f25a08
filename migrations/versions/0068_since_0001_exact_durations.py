"""Durations of topics and subscriptions that have nanoseconds: an interval of PostgreSQL ends with microseconds.

Locks: `topics` and `subscriptions` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0068_since_0001"
down_revision = "0066_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE topics ADD COLUMN exact_durations jsonb")
    op.execute("ALTER TABLE subscriptions ADD COLUMN exact_durations jsonb")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
