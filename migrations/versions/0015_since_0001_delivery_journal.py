"""The journal of deliveries: what became of messages, for each subscription.

Locks: creates only; touches nothing that exists.
"""

from alembic import op

revision = "0015_since_0001"
down_revision = "0014_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    """
    CREATE TABLE delivery_journal (
        shard_id bigint NOT NULL,
        subscription_id bigint NOT NULL,
        bucket bigint NOT NULL,
        number bigint GENERATED ALWAYS AS IDENTITY,
        time timestamptz NOT NULL,
        event text NOT NULL,
        attempt integer NOT NULL,
        seqs int8multirange NOT NULL,
        principal text NOT NULL,
        client text NOT NULL,
        answer text NOT NULL,
        PRIMARY KEY (shard_id, subscription_id, bucket, number)
    )
    """,
    "CREATE INDEX delivery_journal_time_idx ON delivery_journal (subscription_id, time)",
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
