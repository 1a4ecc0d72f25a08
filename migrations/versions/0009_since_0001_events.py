"""Events: where those of a project go, what is wrong just now and was told of, and what waits to be published.

Locks: creates only; touches nothing that exists.
"""

from alembic import op

revision = "0009_since_0001"
down_revision = "0008_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    """
    CREATE TABLE project_settings (
        project text COLLATE "C" PRIMARY KEY,
        event_topic text NOT NULL,
        dead_letters_until timestamptz NOT NULL
    )
    """,
    """
    CREATE TABLE event_conditions (
        project text COLLATE "C" NOT NULL,
        kind text COLLATE "C" NOT NULL,
        subject text COLLATE "C" NOT NULL,
        since timestamptz NOT NULL,
        found_at timestamptz NOT NULL,
        amount bigint NOT NULL,
        PRIMARY KEY (project, kind, subject)
    )
    """,
    """
    CREATE TABLE waiting_events (
        event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        project text NOT NULL,
        occurred_at timestamptz NOT NULL,
        event jsonb NOT NULL
    )
    """,
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
