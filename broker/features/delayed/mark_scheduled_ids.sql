-- Marks some of the ids whose messages do not exist any more: they are neither in a partition nor among the
-- stragglers, and no dead letter can bring them back.
UPDATE scheduled_ids AS d
SET gone_at = %(now)s
FROM (
    SELECT i.shard_id, i.id_seq
    FROM scheduled_ids AS i
    -- A join, because a dead letter is in another shard, perhaps on another node, which NOT EXISTS cannot read.
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
