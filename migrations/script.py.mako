"""${message}

Locks: say which.  Waits for a lock are cut short and the whole revision is tried again, so it does little, and it only
adds: brokers of the version before are still at work on it.  What they need is taken away one release later.  An
index on a table that has rows is a revision of its own (broker/db/schema/online_index.py).  A revision that changes
an SQL function edits its file and installs it by name (broker/db/schema/revision_steps.py).
"""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
