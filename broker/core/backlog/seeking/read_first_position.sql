-- Returns the position of the first message published at or after a time, in the log or among the stragglers.  If
-- there is none, returns the position after the last message: a time in the future says nothing about messages that
-- will be published.
SELECT coalesce(first.publish_time, h.last_publish_time), coalesce(first.seq, h.head + 1)
FROM shards AS h
LEFT JOIN LATERAL (
    SELECT publish_time, seq
    FROM (
        (
            SELECT publish_time, last_seq - count + 1 AS seq FROM message_batches
            WHERE shard_id = %(shard_id)s AND publish_time >= %(time)s
            ORDER BY publish_time, last_seq
            LIMIT 1
        )
        UNION ALL
        (
            SELECT publish_time, last_seq - count + 1 AS seq FROM straggler_batches
            WHERE shard_id = %(shard_id)s AND publish_time >= %(time)s
            ORDER BY publish_time, last_seq
            LIMIT 1
        )
    ) AS either
    ORDER BY seq
    LIMIT 1
) AS first ON true
WHERE h.shard_id = %(shard_id)s
