-- Mark some of those whose messages are in the log no more: neither in a partition nor among the stragglers,
-- nor may they come back from a dead letter.
UPDATE scheduled_ids AS d
SET gone_at = %(now)s
FROM (
    SELECT i.shard_id, i.id_seq
    FROM scheduled_ids AS i
    -- A join, because a dead letter lies in another shard, perhaps on another node, where NOT EXISTS cannot look.
    LEFT JOIN (SELECT source_shard_id, source_seq FROM dead_letters) AS l
        ON l.source_shard_id = i.shard_id AND l.source_seq = i.seq
    WHERE i.gone_at IS NULL AND i.publish_time < %(before)s AND l.source_seq IS NULL
      AND NOT EXISTS (
          SELECT FROM straggler_batches AS b
          WHERE b.shard_id = i.shard_id
            AND b.publish_time = i.publish_time
            AND b.last_seq >= i.seq
            AND b.last_seq - b.count < i.seq
      )
    ORDER BY i.publish_time
    LIMIT %(limit)s
) AS gone
WHERE d.shard_id = gone.shard_id AND d.id_seq = gone.id_seq
