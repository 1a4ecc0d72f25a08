-- Measures several spans of time of a shard, from `starts` on and before `ends`: the first and last sequence, by
-- two index lookups, and the count and size of the first `sample` batches.
-- parameters: shard_id int8, starts timestamptz[], ends timestamptz[], sample int8
-- columns: ordinal, first_seq, last_seq, batches, messages, bytes
SELECT b.ordinal, f.seq AS first_seq, l.seq AS last_seq, s.batches, s.messages, s.bytes
FROM unnest(%(starts)s::timestamptz[], %(ends)s::timestamptz[]) WITH ORDINALITY AS b (start_time, end_time, ordinal)
CROSS JOIN LATERAL (
    SELECT m.last_seq - m.count + 1 AS seq
    FROM message_batches AS m
    WHERE m.shard_id = %(shard_id)s AND m.publish_time >= b.start_time AND m.publish_time < b.end_time
    ORDER BY m.publish_time, m.last_seq
    LIMIT 1
) AS f
CROSS JOIN LATERAL (
    SELECT m.last_seq AS seq
    FROM message_batches AS m
    WHERE m.shard_id = %(shard_id)s AND m.publish_time >= b.start_time AND m.publish_time < b.end_time
    ORDER BY m.publish_time DESC, m.last_seq DESC
    LIMIT 1
) AS l
CROSS JOIN LATERAL (
    SELECT count(*) AS batches, sum(c.count)::int8 AS messages, sum(c.size)::int8 AS bytes
    FROM (
        SELECT m.count, m.size
        FROM message_batches AS m
        WHERE m.shard_id = %(shard_id)s AND m.publish_time >= b.start_time AND m.publish_time < b.end_time
        ORDER BY m.publish_time, m.last_seq
        LIMIT %(sample)s
    ) AS c
) AS s
