-- The last number that was taken: read before find_staged, in a statement of its own.  And up to which number all had
-- been taken that somebody saw.
-- columns: last, relayed_to
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('staged', 'n')::regclass), 0) AS last,
       (SELECT relayed_to FROM relaying) AS relayed_to
