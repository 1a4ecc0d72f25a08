"""What the broker's tables took when they were measured last, so that all processes go by one measurement.

Locks: none that anybody waits for.
"""

import sqlalchemy as sa
from alembic import op

revision = "0061_since_0001"
down_revision = "0059_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "table_sizes",
        sa.Column("max_bytes", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("is_full", sa.Boolean, nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=False),
        prefixes=["UNLOGGED"],
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
