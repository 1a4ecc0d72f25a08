-- Notifies the brokers, if the database supports NOTIFY. Otherwise they find new rows by polling.
CREATE OR REPLACE FUNCTION notify_brokers(channel text, payload text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_notify(channel, payload);
EXCEPTION WHEN feature_not_supported OR undefined_function THEN
    NULL;  -- others look by themselves
END $$;
