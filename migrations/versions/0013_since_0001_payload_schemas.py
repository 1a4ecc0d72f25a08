"""Schemas of messages, and the topics' settings of them.

Locks: `topics` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0013_since_0001"
down_revision = "0012_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    """
    CREATE TABLE payload_schemas (
        schema_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        type text NOT NULL
    )
    """,
    """
    CREATE TABLE payload_schema_revisions (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        schema_id bigint NOT NULL,
        revision_id text NOT NULL,
        definition text NOT NULL,
        compiled bytea,
        root_message text,
        created_at timestamptz NOT NULL,
        UNIQUE (schema_id, revision_id)
    )
    """,
    """
    ALTER TABLE topics
        ADD COLUMN schema_id bigint,
        ADD COLUMN schema_encoding text,
        ADD COLUMN first_revision_id text,
        ADD COLUMN last_revision_id text
    """,
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
