"""The filter of a subscription, where it reads bodies.

Brokers that do not know this column deliver what the attributes alone may match: more than the filter wants.  While
one of them runs, such filters are refused (broker/services/subscriptions.py).  Locks: `subscriptions` for a moment,
as any new column without a default does.
"""

from alembic import op

revision = "0026_since_0001"
down_revision = "0025_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE subscriptions ADD COLUMN body_path jsonpath")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
