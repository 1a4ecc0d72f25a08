"""What tells other processes of something, where the database can: one that knows no NOTIFY loses nothing by it.

Locks: none that anybody waits for.
"""

from alembic import op

revision = "0057_since_0001"
down_revision = "0056_since_0001"
branch_labels = None
depends_on = None

TELL = """
CREATE FUNCTION tell_brokers(channel text, payload text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_notify(channel, payload);
EXCEPTION WHEN feature_not_supported OR undefined_function THEN
    NULL;  -- others look by themselves
END $$
"""

# As in 0037, but for who tells.
WAKE_RELAY = """
CREATE OR REPLACE FUNCTION wake_relay() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_awake boolean;
BEGIN
    EXECUTE format('SELECT awake_until > clock_timestamp() FROM %I.relaying', TG_TABLE_SCHEMA) INTO is_awake;
    IF is_awake IS NOT TRUE THEN
        EXECUTE format('SELECT %I.tell_brokers($1, $2)', TG_TABLE_SCHEMA)
        USING 'broker_staged' || CASE TG_TABLE_SCHEMA WHEN 'public' THEN '' ELSE '.' || TG_TABLE_SCHEMA END, '';
    END IF;
    RETURN NULL;
END $$
"""


def upgrade() -> None:
    op.execute(TELL)
    op.execute(WAKE_RELAY)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
