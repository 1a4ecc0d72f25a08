"""Locks that only the broker's role can take, and the key that hides what brokers tell each other.

Locks: none that anybody waits for.
"""

import secrets

from alembic import op
from sqlalchemy import text

revision = "0075_since_0001"
down_revision = "0074_since_0001"
branch_labels = None
depends_on = None

LOCKS = ("lock_partitions", "lock_cleanup", "lock_dropping", "lock_declaring", "lock_measuring", "lock_events")

# PL/pgSQL, because PostgreSQL reports an error that is handled there neither to the client nor in its log.
TRY_LOCK = """
CREATE FUNCTION try_lock(lock_table text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('LOCK TABLE %I IN EXCLUSIVE MODE NOWAIT', lock_table);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$
"""

# Another transaction that inserts the same name waits at the unique index until this one ends, and nothing is left.
LOCK_NAME = """
CREATE FUNCTION lock_name(of_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO locked_names (name) VALUES (of_name);
    DELETE FROM locked_names WHERE name = of_name;
END $$
"""


def upgrade() -> None:
    for lock in LOCKS:
        op.execute(f"CREATE TABLE {lock} ()")
    op.execute("CREATE TABLE locked_names (name text PRIMARY KEY)")
    op.execute(TRY_LOCK)
    op.execute(LOCK_NAME)
    op.execute("CREATE TABLE notification_keys (key bytea PRIMARY KEY)")
    key = text("INSERT INTO notification_keys (key) VALUES (:key)")
    op.get_bind().execute(key, {"key": secrets.token_bytes(32)})


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
