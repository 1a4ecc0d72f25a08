-- How much the log of a topic has that was published from a time on.  It looks at `most` batches at the most.
SELECT coalesce(sum(b.count), 0)::int8, coalesce(sum(b.size), 0)::int8, count(*)
FROM (
    SELECT count, size
    FROM message_batches
    WHERE shard_id = ANY (%(shard_ids)s::int8[]) AND publish_time >= %(since)s
    LIMIT %(most)s
) AS b
