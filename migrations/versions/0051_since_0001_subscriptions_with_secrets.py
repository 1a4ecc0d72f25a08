"""An index by which subscriptions with webhook secrets are found among very many.

Locks: none that a claim or an ack waits for.
"""

from broker.store.schema.online_index import build_index_online

revision = "0051_since_0001"
down_revision = "0050_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    build_index_online(
        "subscriptions_secrets_idx",
        "subscriptions",
        "(subscription_id) WHERE extensions -> 'push' ? 'webhook_secrets'",
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
