-- Deletes stragglers that no delivery attempt, snapshot or kept dead letter refers to.
DELETE FROM straggler_batches AS m
WHERE NOT EXISTS (
    SELECT FROM delivery_attempts AS d
    WHERE d.shard_id = m.shard_id
      AND d.first_publish_time <= m.publish_time
      AND d.last_publish_time >= m.publish_time
      AND (
          int8range(m.last_seq - m.count, m.last_seq, '(]') && d.seqs
          OR d.redriven AND int8range(m.last_seq - m.count, m.last_seq, '(]') && d.waiting
      )
)
AND NOT EXISTS (
    SELECT FROM snapshot_outstanding AS o
    WHERE o.shard_id = m.shard_id
      AND o.first_publish_time <= m.publish_time
      AND o.last_publish_time >= m.publish_time
      AND int8range(m.last_seq - m.count, m.last_seq, '(]') && o.seqs
)
AND NOT EXISTS (  -- an unresolved dead letter is kept for a while
    SELECT FROM dead_letters AS l
    WHERE l.shard_id = m.shard_id
      AND l.publish_time = m.publish_time
      AND l.seq <= m.last_seq
      AND l.seq > m.last_seq - m.count
      AND l.publish_time >= %(kept_since)s
      AND l.resolution IS NULL
)
