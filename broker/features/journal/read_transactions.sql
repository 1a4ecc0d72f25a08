-- Returns the oldest transaction that has written something and has not ended, and the next one to begin.  The end
-- of a snapshot follows the last transaction that has ended, but others that have begun since may be active; the
-- age of that end tells how many.
-- columns: node, oldest, next
SELECT 0 AS node,
       pg_snapshot_xmin(s)::text::int8 AS oldest,
       pg_snapshot_xmax(s)::text::int8 + age(pg_snapshot_xmax(s)::xid) AS next
FROM pg_current_snapshot() AS s
