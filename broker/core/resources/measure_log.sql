-- How much the log of a topic has that was published from a time on, and what waits there for its time.  It looks at
-- `most` batches and `most` scheduled messages at the most.
SELECT log.messages, log.bytes, log.batches, later.messages, later.bytes
FROM (
    SELECT coalesce(sum(b.count), 0)::int8 AS messages, coalesce(sum(b.size), 0)::int8 AS bytes, count(*) AS batches
    FROM (
        SELECT count, size
        FROM message_batches
        WHERE shard_id = ANY (%(shard_ids)s::int8[]) AND publish_time >= %(since)s
        LIMIT %(most)s
    ) AS b
) AS log
CROSS JOIN (
    SELECT count(*) AS messages, coalesce(sum(m.size), 0)::int8 AS bytes
    FROM (
        SELECT size FROM scheduled_messages WHERE shard_id = ANY (%(shard_ids)s::int8[]) LIMIT %(most)s
    ) AS m
) AS later
