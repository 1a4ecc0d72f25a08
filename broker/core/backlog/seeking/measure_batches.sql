-- Counts the messages of a shard between two positions that are retained and have not expired, from the figures of
-- their batches: no message is read.  The size of a batch that is only partly counted is reduced in proportion.
-- Reads at most `most` batches, and returns how many.
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
