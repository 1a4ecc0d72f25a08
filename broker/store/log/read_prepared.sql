-- Transactions of this database that nodes have prepared, and that neither are committed there nor undone, by node.  A node
-- that does not answer has none, and `answers` is false.
-- columns: node, answers, gids
SELECT nodeid AS node, success AS answers, CASE WHEN success THEN result END AS gids
FROM run_command_on_all_nodes($q$
    SELECT coalesce(string_agg(gid, ' '), '') FROM pg_prepared_xacts WHERE database = current_database()
$q$)
