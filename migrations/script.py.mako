"""${message}

Locks: say which, and for how long.  Expand before the code that needs it is deployed, contract after the code
that used it is gone; indexes on large tables CONCURRENTLY.
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
