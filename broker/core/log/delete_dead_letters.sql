-- Deletes the rows of dead letters that are not in the log any more: no partition has their publish times, and they
-- are not among the stragglers.  Rows that record what an operator did with a dead letter are kept until
-- `kept_since` has passed their publish time.
DELETE FROM dead_letters
WHERE publish_time >= %(since)s  -- repeated, or older PostgreSQL finds the rows by a full scan
  AND publish_time < %(until)s
  AND (shard_id, publish_time, seq) IN (
    SELECT d.shard_id, d.publish_time, d.seq
    FROM dead_letters AS d
    WHERE d.publish_time >= %(since)s
      AND d.publish_time < %(until)s
      AND (d.resolution IS NULL OR d.resolution = 'acknowledged' OR d.publish_time < %(kept_since)s)
      AND NOT EXISTS (
          SELECT FROM straggler_batches AS s
          WHERE s.shard_id = d.shard_id
            AND s.publish_time = d.publish_time
            AND s.last_seq >= d.seq
            AND s.last_seq - s.count < d.seq
      )
    ORDER BY d.publish_time
    LIMIT %(limit)s
)
RETURNING subscription_id, subscription, resolution IS NULL AS is_lost
