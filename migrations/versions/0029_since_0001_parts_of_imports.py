"""Parts of imports that are stored, so that one that is sent again is known.

Locks nothing: the table is new.
"""

from alembic import op

revision = "0029_since_0001"
down_revision = "0028_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE imported_parts (
            topic_id bigint NOT NULL,
            import_id text COLLATE "C" NOT NULL,
            part bigint NOT NULL,
            digest bytea NOT NULL,
            message_count bigint NOT NULL,
            imported_at timestamptz NOT NULL,
            PRIMARY KEY (topic_id, import_id, part)
        )
        """
    )
    op.execute("CREATE INDEX imported_parts_time_idx ON imported_parts (imported_at)")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
