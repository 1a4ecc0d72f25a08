"""Transactions that nodes have prepared, and of whose outcome they have not been informed."""

# The prepared transactions of this database that are neither committed nor rolled back, by node: the name of each,
# and its age in seconds.  A node that does not answer has none, and `answers` is false.
READ_PREPARED = b"""
    SELECT coalesce(n.nodename || ':' || n.nodeport, r.nodeid::text) AS node, r.success AS answers,
           CASE WHEN r.success THEN r.result::json END AS prepared
    FROM run_command_on_all_nodes($q$
        SELECT coalesce(json_agg(json_build_array(gid, seconds)), '[]')
        FROM (
            SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::int AS seconds
            FROM pg_prepared_xacts WHERE database = current_database()
        ) AS p
    $q$) AS r LEFT JOIN pg_dist_node AS n ON n.nodeid = r.nodeid
"""

LONG_SECONDS = 60  # Citus checks once a minute, unless citus.recover_2pc_interval is set
WHAT_TO_DO = "SELECT recover_prepared_transactions() on the coordinator ends it"
