"""The id of a message that came later leads to what is recorded of it after the message has left the log.

Locks: `scheduled_ids` while two indexes on it are built; it has a row for each delayed message that the log has.
"""

from alembic import op

revision = "0078_since_0001"
down_revision = "0076_since_0001"
branch_labels = None
depends_on = None

STATEMENTS = [
    "ALTER TABLE scheduled_ids ADD COLUMN gone_at timestamptz",
    "CREATE INDEX scheduled_ids_in_log_idx ON scheduled_ids (publish_time) WHERE gone_at IS NULL",
    "CREATE INDEX scheduled_ids_gone_idx ON scheduled_ids (gone_at) WHERE gone_at IS NOT NULL",
    "DROP INDEX scheduled_ids_publish_time_idx",
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
