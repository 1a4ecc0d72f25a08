"""Since when each dead letter is recorded: those from before have no row that says whose they are.

Older brokers, which record none, may run beside newer ones for a while after a migration: a day.  Where there is no
topic yet there are no such letters.  Locks nothing: the table is new.
"""

from alembic import op

revision = "0036_since_0001"
down_revision = "0035_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE TABLE letters_recorded (since timestamptz PRIMARY KEY)")
    op.execute(
        "INSERT INTO letters_recorded"
        " SELECT now() + CASE WHEN EXISTS (SELECT FROM topics) THEN interval '1 day' ELSE interval '0' END"
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
