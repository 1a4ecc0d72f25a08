-- Estimates the sizes of the logs of shards, at a cost that does not grow with the number of stored messages: the
-- messages from the first one to the head, and these times the average size of the newest ones.
-- parameters: shard_ids int8[]
-- columns: shard_id, retained_messages, retained_bytes
SELECT h.shard_id,
       coalesce(h.head - first.seq + 1, 0)::int8 AS retained_messages,
       coalesce((h.head - first.seq + 1) * newest.message_size, 0)::int8 AS retained_bytes
FROM shards AS h
LEFT JOIN LATERAL (
    SELECT b.last_seq - b.count + 1 AS seq
    FROM message_batches AS b
    WHERE b.shard_id = h.shard_id AND h.head > 0
    ORDER BY b.publish_time, b.last_seq
    LIMIT 1
) AS first ON true
LEFT JOIN LATERAL (
    SELECT sum(b.size)::float8 / sum(b.count) AS message_size
    FROM (
        SELECT size, count FROM message_batches
        WHERE shard_id = h.shard_id AND h.head > 0
        ORDER BY publish_time DESC, last_seq DESC
        LIMIT 20
    ) AS b
) AS newest ON true
WHERE h.shard_id = ANY (%(shard_ids)s::int8[])
