"""Dead letters: where each stands, where its message was, and why that was given up.

Locks: creates only; touches nothing that exists.
"""

from alembic import op

revision = "0003_since_0001"
down_revision = "0002_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    """
    CREATE TABLE dead_letters (
        shard_id bigint NOT NULL,
        publish_time timestamptz NOT NULL,
        seq bigint NOT NULL,
        source_shard_id bigint NOT NULL,
        source_seq bigint NOT NULL,
        source_publish_time timestamptz NOT NULL,
        source_topic text NOT NULL,
        subscription_id bigint NOT NULL,
        subscription text NOT NULL,
        delivery_attempts integer NOT NULL,
        reason text NOT NULL,
        PRIMARY KEY (shard_id, publish_time, seq)
    )
    """,
    "CREATE INDEX dead_letters_source_idx ON dead_letters (source_shard_id, source_seq, subscription_id)",
    "CREATE INDEX dead_letters_publish_time_idx ON dead_letters (publish_time)",
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
