"""Schedules, and what became of their last ticks.

Locks nothing: the tables are new.
"""

from alembic import op

revision = "0034_since_0001"
down_revision = "0033_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE schedules (
            name text COLLATE "C" PRIMARY KEY,
            definition jsonb NOT NULL,
            anchor timestamptz NOT NULL,
            next_at timestamptz,
            paused boolean NOT NULL,
            ticks bigint NOT NULL,
            last_outcome text,
            created_by text NOT NULL,
            created_at timestamptz NOT NULL,
            updated_at timestamptz NOT NULL
        )
        """
    )
    op.execute("CREATE INDEX schedules_next_idx ON schedules (next_at) WHERE next_at IS NOT NULL")
    op.execute(
        """
        CREATE TABLE schedule_ticks (
            schedule text COLLATE "C" NOT NULL,
            number bigint NOT NULL,
            planned_at timestamptz,
            ran_at timestamptz NOT NULL,
            outcome text NOT NULL,
            reason text NOT NULL,
            message_id text NOT NULL,
            PRIMARY KEY (schedule, number)
        )
        """
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
