-- Wakes the brokers on commit, once per transaction. NOTIFY takes a lock for which all committing transactions wait
-- until they are on disk, so it is skipped while a broker polls anyway. The function runs with the rights of its
-- owner, because the committing role has none on these tables.
CREATE OR REPLACE FUNCTION wake_outbox_relay() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_awake boolean;
BEGIN
    EXECUTE format('SELECT awake_until > clock_timestamp() FROM %I.outbox_progress', TG_TABLE_SCHEMA) INTO is_awake;
    IF is_awake IS NOT TRUE THEN
        EXECUTE format('SELECT %I.notify_brokers($1, $2)', TG_TABLE_SCHEMA)
        USING 'broker_outbox.' || TG_TABLE_SCHEMA, '';
    END IF;
    RETURN NULL;
END $$;

REVOKE EXECUTE ON FUNCTION wake_outbox_relay FROM PUBLIC;
