-- Returns the last number that was given out, and the number up to which all visible rows had been taken.  It runs
-- before find_outbox_rows.sql, as a statement of its own.
-- columns: last, relayed_to
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox', 'n')::regclass), 0) AS last,
       (SELECT relayed_to FROM outbox_progress) AS relayed_to
