"""Which of the messages that were withdrawn were cancelled before their time came.

Locks `retracted_messages` for a moment; the column is null for what there is.
"""

from alembic import op

revision = "0063_since_0001"
down_revision = "0062_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE retracted_messages ADD COLUMN cancelled boolean")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
