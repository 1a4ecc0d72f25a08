"""An index by which subscriptions with a dead-letter topic are found among very many.

Locks: none that a claim or an ack waits for.
"""

from broker.store.schema.online_index import build_index_online

revision = "0043_since_0001"
down_revision = "0042_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    build_index_online(
        "subscriptions_dead_letter_idx", "subscriptions", "(subscription_id) WHERE dead_letter_topic IS NOT NULL"
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
