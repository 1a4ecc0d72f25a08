"""What a commit to a schema of messages is asked for: its compatibility.

Locks: `payload_schemas` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0017_since_0001"
down_revision = "0016_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE payload_schemas ADD COLUMN compatibility text")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
