"""What is known of messages that were retracted.

Locks nothing: the table is new.
"""

from alembic import op

revision = "0042_since_0001"
down_revision = "0041_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE retracted_messages (
            shard_id bigint NOT NULL,
            id_seq bigint NOT NULL,
            seq bigint,
            publish_time timestamptz NOT NULL,
            retracted_at timestamptz NOT NULL,
            retracted_by text NOT NULL,
            head bigint NOT NULL,
            standings jsonb,
            replacement_shard_id bigint,
            replacement_id_seq bigint,
            PRIMARY KEY (shard_id, id_seq)
        )
        """
    )
    op.execute("CREATE INDEX retracted_messages_seq_idx ON retracted_messages (shard_id, seq)")
    op.execute("CREATE INDEX retracted_messages_publish_time_idx ON retracted_messages (publish_time)")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
