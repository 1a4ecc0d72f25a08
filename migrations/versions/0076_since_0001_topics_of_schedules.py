"""An index by which the schedules of a topic are found.

Locks: none that a tick waits for.
"""

from broker.store.schema.online_index import build_index_online

revision = "0076_since_0001"
down_revision = "0075_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    build_index_online("schedules_topic_idx", "schedules", "((definition ->> 'topic'))")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
