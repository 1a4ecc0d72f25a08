-- Returns the positions of messages by their sequences, in the log or among the stragglers.  Each is found by
-- bisection, as in core/log/find_message.sql.
-- parameters: shard_ids int8[], seqs int8[]
-- columns: shard_id, seq, publish_time, ordering_key, expires_at
SELECT w.shard_id, w.seq, l.publish_time, l.ordering_key, l.expires_at
FROM unnest(%(shard_ids)s::int8[], %(seqs)s::int8[]) AS w (shard_id, seq)
CROSS JOIN LATERAL (
    WITH RECURSIVE search (low, high, steps) AS (
        SELECT oldest.publish_time, s.last_publish_time, 0
        FROM shards AS s
        CROSS JOIN LATERAL (
            SELECT publish_time FROM message_batches
            WHERE shard_id = w.shard_id
            ORDER BY publish_time, last_seq
            LIMIT 1
        ) AS oldest
        WHERE s.shard_id = w.shard_id
        UNION ALL
        SELECT CASE WHEN p.first_seq <= w.seq THEN p.publish_time ELSE r.low END,
               CASE WHEN p.first_seq <= w.seq THEN r.high ELSE r.low + (r.high - r.low) / 2 END,
               r.steps + 1
        FROM search AS r
        CROSS JOIN LATERAL (
            SELECT publish_time, last_seq - count + 1 AS first_seq FROM message_batches
            WHERE shard_id = w.shard_id AND publish_time >= r.low + (r.high - r.low) / 2
            ORDER BY publish_time, last_seq
            LIMIT 1
        ) AS p
        WHERE r.high - r.low > interval '1 millisecond' AND r.steps < 64
    )
    SELECT b.publish_time, b.ordering_key, b.expires_at
    FROM (
        (
            SELECT f.publish_time, f.ordering_key, f.expires_at, f.last_seq, f.count
            FROM (SELECT low, high FROM search ORDER BY steps DESC LIMIT 1) AS r
            CROSS JOIN LATERAL (
                SELECT publish_time, ordering_key, expires_at, last_seq, count FROM message_batches
                WHERE shard_id = w.shard_id AND publish_time >= r.low AND publish_time <= r.high AND last_seq >= w.seq
                ORDER BY publish_time, last_seq
                LIMIT 1
            ) AS f
        )
        UNION ALL
        (
            SELECT publish_time, ordering_key, expires_at, last_seq, count FROM straggler_batches
            WHERE shard_id = w.shard_id AND last_seq >= w.seq AND last_seq - count < w.seq
            LIMIT 1
        )
    ) AS b
    WHERE b.last_seq - b.count < w.seq
    LIMIT 1
) AS l
