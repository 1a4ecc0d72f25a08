"""The record of deliveries: who acknowledged which messages, for every subscription.

Locks nothing: the table is new.
"""

from alembic import op

revision = "0062_since_0001"
down_revision = "0061_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE delivery_records (
            shard_id bigint NOT NULL,
            subscription_id bigint NOT NULL,
            bucket bigint NOT NULL,
            recorded_at timestamptz NOT NULL,
            principal text NOT NULL,
            client text NOT NULL,
            answer text NOT NULL,
            entries bytea NOT NULL
        ) PARTITION BY RANGE (recorded_at)
        """
    )
    op.execute("CREATE INDEX delivery_records_bucket_idx ON delivery_records (shard_id, subscription_id, bucket)")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
