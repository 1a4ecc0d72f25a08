-- How many messages of a shard stand between two positions, and are retained and have not expired; by their batches, so
-- that no message is read.  Of a batch that is cut the size is taken in proportion.  It looks at `most` batches at the
-- most, and says at how many.
SELECT coalesce(sum(b.held), 0)::int8, coalesce(sum(b.size * b.held / b.count), 0)::int8, max(b.publish_time), count(*)
FROM (
    (
        SELECT l.publish_time, l.size::int8, l.count,
               least(l.last_seq + 1, %(until_seq)s) - greatest(l.last_seq - l.count + 1, %(from_seq)s) AS held
        FROM message_batches AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (%(from_publish_time)s, %(from_seq)s)
          AND l.publish_time >= greatest(%(from_publish_time)s, %(retained_since)s)
          AND l.publish_time <= %(until_publish_time)s
          AND l.last_seq >= %(from_seq)s
          AND l.last_seq - l.count + 1 < %(until_seq)s
          AND (l.expires_at IS NULL OR l.expires_at > %(now)s)
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(most)s
    )
    UNION ALL
    (
        SELECT l.publish_time, l.size::int8, l.count,
               least(l.last_seq + 1, %(until_seq)s) - greatest(l.last_seq - l.count + 1, %(from_seq)s) AS held
        FROM straggler_batches AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (%(from_publish_time)s, %(from_seq)s)
          AND l.publish_time >= greatest(%(from_publish_time)s, %(retained_since)s)
          AND l.last_seq >= %(from_seq)s
          AND l.last_seq - l.count + 1 < %(until_seq)s
          AND (l.expires_at IS NULL OR l.expires_at > %(now)s)
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(most)s
    )
) AS b
