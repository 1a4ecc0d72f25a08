"""An index by which the due schedules of one project are found among those of all.

Locks: none that a tick waits for.
"""

from broker.store.schema.online_index import build_index_online

revision = "0074_since_0001"
down_revision = "0072_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    build_index_online(
        "schedules_project_idx",
        "schedules",
        "(split_part(name, '/schedules/', 1), next_at) WHERE next_at IS NOT NULL",
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
