"""Messages that wait for their time, and where in the log those came to stand whose time has come.

Locks nothing: the tables are new.
"""

from alembic import op

revision = "0031_since_0001"
down_revision = "0030_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE scheduled_messages (
            shard_id bigint NOT NULL,
            id_seq bigint NOT NULL,
            due_at timestamptz NOT NULL,
            accepted_at timestamptz NOT NULL,
            size integer NOT NULL,
            ordering_key text,
            attributes jsonb,
            data bytea NOT NULL,
            PRIMARY KEY (shard_id, id_seq)
        )
        """
    )
    op.execute("CREATE INDEX scheduled_messages_due_idx ON scheduled_messages (shard_id, due_at, id_seq)")
    op.execute(
        """
        CREATE TABLE scheduled_ids (
            shard_id bigint NOT NULL,
            id_seq bigint NOT NULL,
            seq bigint NOT NULL,
            publish_time timestamptz NOT NULL,
            PRIMARY KEY (shard_id, id_seq)
        )
        """
    )
    op.execute("CREATE INDEX scheduled_ids_seq_idx ON scheduled_ids (shard_id, seq)")
    op.execute("CREATE INDEX scheduled_ids_publish_time_idx ON scheduled_ids (publish_time)")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
