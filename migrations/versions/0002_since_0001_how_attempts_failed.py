"""How a delivery attempt has failed, for its dead letter to tell.

Locks: `delivery_attempts`, for the moment that it takes to add a column that is null; no row is read or written.
"""

from alembic import op

revision = "0002_since_0001"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE delivery_attempts ADD COLUMN failure text")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
