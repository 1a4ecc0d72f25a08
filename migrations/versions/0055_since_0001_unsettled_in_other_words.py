"""The function `unsettled`, which says the same in other words: Citus takes a CASE with a value for another one.

Locks: none.  Whoever uses it meanwhile has the one or the other.
"""

from alembic import op

revision = "0055_since_0001"
down_revision = "0054_since_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE OR REPLACE FUNCTION unsettled(seqs int8multirange, open bit varying) RETURNS int8multirange
        LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
            CASE
                WHEN position(B'1' IN open) = 0 THEN '{}'::int8multirange
                WHEN position(B'1' IN open) = 1 THEN seqs
                ELSE seqs * int8multirange(int8range(nth_sequence(seqs, position(B'1' IN open)), NULL))
            END
        """
    )


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
