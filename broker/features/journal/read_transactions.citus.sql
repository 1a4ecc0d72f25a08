-- Returns a row for each node.  A row of the journal is written by a transaction of the node of its shard, which
-- has an id of its own there, and may end a moment after the transaction of the coordinator.  A node that does not
-- answer has NULLs.
-- columns: node, oldest, next
SELECT nodeid AS node,
       CASE WHEN success THEN split_part(result, ' ', 1)::int8 END AS oldest,
       CASE WHEN success THEN split_part(result, ' ', 2)::int8 END AS next
FROM run_command_on_all_nodes($q$
    SELECT pg_snapshot_xmin(s)::text || ' ' || pg_snapshot_xmax(s)::text::int8 + age(pg_snapshot_xmax(s)::xid)
    FROM pg_current_snapshot() AS s
$q$)
