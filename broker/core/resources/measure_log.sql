-- Counts the messages and bytes of a topic's log that were published since a time.  Reads at most `most` batches.
SELECT coalesce(sum(b.count), 0)::int8, coalesce(sum(b.size), 0)::int8, count(*)
FROM (
    SELECT count, size
    FROM message_batches
    WHERE shard_id = ANY (%(shard_ids)s::int8[]) AND publish_time >= %(since)s
    LIMIT %(most)s
) AS b
