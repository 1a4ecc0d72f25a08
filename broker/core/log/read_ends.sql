-- Returns the heads of shards, also of closed ones, and how many messages of each were published within an
-- interval.  Messages are counted by their sequences, so that those which a transform dropped are included.
-- parameters: shard_ids int8[], since timestamptz, until timestamptz
-- columns: shard_id, head, count
SELECT h.shard_id, h.head,
       greatest(coalesce(behind.seq, h.head + 1) - coalesce(first.seq, h.head + 1), 0)::int8 AS count
FROM shards AS h
LEFT JOIN LATERAL (
    SELECT last_seq - count + 1 AS seq FROM message_batches
    WHERE shard_id = h.shard_id AND publish_time >= %(since)s
    ORDER BY publish_time, last_seq
    LIMIT 1
) AS first ON true
LEFT JOIN LATERAL (
    SELECT last_seq - count + 1 AS seq FROM message_batches
    WHERE shard_id = h.shard_id AND publish_time >= %(until)s
    ORDER BY publish_time, last_seq
    LIMIT 1
) AS behind ON true
WHERE h.shard_id = ANY (%(shard_ids)s::int8[])
