"""What repeats of messages are known by.

Locks nothing: the table is new.
"""

from alembic import op

revision = "0041_since_0001"
down_revision = "0040_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE message_identities (
            shard_id bigint NOT NULL,
            digest uuid NOT NULL,
            seq bigint NOT NULL,
            published_at timestamptz NOT NULL
        ) PARTITION BY RANGE (published_at)
        """
    )
    op.execute("CREATE INDEX message_identities_digest_idx ON message_identities (shard_id, digest)")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
