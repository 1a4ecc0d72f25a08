"""How many connections to the database each process may open: `broker doctor` counts what the fleet needs.

Locks `processes` for a moment.  Processes of older brokers say nothing.
"""

from alembic import op

revision = "0038_since_0001"
down_revision = "0037_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE processes ADD COLUMN database_connections integer")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
