-- The last number that was taken: read before find_outbox_rows, in a statement of its own.  And up to which number all
-- had been taken that somebody saw.
-- columns: last, relayed_to
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox', 'n')::regclass), 0) AS last,
       (SELECT relayed_to FROM outbox_progress) AS relayed_to
