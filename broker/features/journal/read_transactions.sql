-- The oldest transaction that has written something and goes on, and the next one to begin.  A snapshot ends behind the
-- last transaction that has ended, while others may go on that have begun since: the age of that end tells how many.
-- columns: node, oldest, next
SELECT 0 AS node,
       pg_snapshot_xmin(s)::text::int8 AS oldest,
       pg_snapshot_xmax(s)::text::int8 + age(pg_snapshot_xmax(s)::xid) AS next
FROM pg_current_snapshot() AS s
