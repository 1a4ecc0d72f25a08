"""What is done to each message of a topic, in order: its transforms.

Locks: `topics` for a moment, as any new column without a default does.
"""

from alembic import op

revision = "0018_since_0001"
down_revision = "0017_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE topics ADD COLUMN message_transforms text")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
