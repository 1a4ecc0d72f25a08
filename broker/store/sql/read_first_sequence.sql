-- The sequence of the first message at or after a publish time, in the log or among the stragglers; the next one
-- to be given out if there is none.
SELECT coalesce(min(first.seq), (SELECT head + 1 FROM shards WHERE shard_id = %(shard_id)s))
FROM (
    (
        SELECT seq FROM messages
        WHERE shard_id = %(shard_id)s AND publish_time >= %(time)s
        ORDER BY publish_time, seq
        LIMIT 1
    )
    UNION ALL
    (
        SELECT seq FROM straggler_messages
        WHERE shard_id = %(shard_id)s AND publish_time >= %(time)s
        ORDER BY publish_time, seq
        LIMIT 1
    )
) AS first
