"""An index by which what was written last into a subscription's journal is found.

Locks: none that a claim or an ack waits for.
"""

from broker.store.schema.online_index import build_index_online

revision = "0016_since_0001"
down_revision = "0015_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    build_index_online("delivery_journal_number_idx", "delivery_journal", "(subscription_id, number)")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
