"""Long work: what was asked for, how far it is, and what became of it.

Locks nothing: the table is new.
"""

from alembic import op

revision = "0027_since_0001"
down_revision = "0026_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE operations (
            name text COLLATE "C" PRIMARY KEY,
            project text NOT NULL,
            verb text NOT NULL,
            target text NOT NULL,
            started_by text NOT NULL,
            request jsonb NOT NULL,
            progress jsonb NOT NULL,
            counts jsonb NOT NULL,
            done bigint NOT NULL,
            total bigint NOT NULL,
            is_estimate boolean NOT NULL,
            created_at timestamptz NOT NULL,
            updated_at timestamptz NOT NULL,
            next_step_at timestamptz NOT NULL,
            ended_at timestamptz,
            error_code text,
            error_message text
        )
        """
    )
    op.execute("CREATE INDEX operations_next_step_idx ON operations (next_step_at) WHERE ended_at IS NULL")
    op.execute("CREATE INDEX operations_ended_idx ON operations (ended_at) WHERE ended_at IS NOT NULL")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
