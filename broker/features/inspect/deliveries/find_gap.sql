-- Returns the publish times of the messages before and after a sequence that the log does not have; the second is
-- that of the last publish if no message follows.  There is no row if the sequence was never given out, or if the
-- log has no message before it.  The search is that of find_message.sql.
-- parameters: shard_id int8, seq int8
-- columns: low, high
WITH RECURSIVE search (low, high, steps) AS (
    SELECT oldest.publish_time, s.last_publish_time, 0
    FROM shards AS s
    CROSS JOIN LATERAL (
        SELECT publish_time FROM message_batches
        WHERE shard_id = %(shard_id)s
        ORDER BY publish_time, last_seq
        LIMIT 1
    ) AS oldest
    WHERE s.shard_id = %(shard_id)s
    UNION ALL
    SELECT CASE WHEN p.first_seq <= %(seq)s THEN p.publish_time ELSE r.low END,
           CASE WHEN p.first_seq <= %(seq)s THEN r.high ELSE r.low + (r.high - r.low) / 2 END,
           r.steps + 1
    FROM search AS r
    CROSS JOIN LATERAL (
        SELECT publish_time, last_seq - count + 1 AS first_seq FROM message_batches
        WHERE shard_id = %(shard_id)s AND publish_time >= r.low + (r.high - r.low) / 2
        ORDER BY publish_time, last_seq
        LIMIT 1
    ) AS p
    WHERE r.high - r.low > interval '1 millisecond' AND r.steps < 64
)
SELECT r.low, coalesce(behind.publish_time, s.last_publish_time) AS high
FROM shards AS s
CROSS JOIN (SELECT low FROM search ORDER BY steps DESC LIMIT 1) AS r
LEFT JOIN LATERAL (
    SELECT publish_time FROM message_batches
    WHERE shard_id = %(shard_id)s AND publish_time >= r.low AND last_seq - count >= %(seq)s
    ORDER BY publish_time, last_seq
    LIMIT 1
) AS behind ON true
WHERE s.shard_id = %(shard_id)s AND s.head >= %(seq)s
  AND EXISTS (
      SELECT FROM message_batches
      WHERE shard_id = %(shard_id)s AND publish_time = r.low AND last_seq < %(seq)s
  )
