-- Copies the unresolved dead letters of a partition that are kept to the stragglers.  Whole batches are copied, as
-- by copy_stragglers.sql.
INSERT INTO straggler_batches (shard_id, publish_time, last_seq, count, size, ordering_key, attributes, data,
                               shared_attributes, id_seqs, expires_at)
SELECT m.shard_id, m.publish_time, m.last_seq, m.count, m.size, m.ordering_key, m.attributes, m.data,
       m.shared_attributes, m.id_seqs, m.expires_at
FROM dead_letters AS d
JOIN message_batches AS m
  ON m.shard_id = d.shard_id
 AND m.publish_time = d.publish_time
 AND m.last_seq >= d.seq
 AND m.last_seq < d.seq + 1000
 AND m.last_seq - m.count < d.seq
WHERE d.publish_time >= %(start)s
  AND d.publish_time < %(end)s
  AND d.publish_time >= %(kept_since)s
  AND d.resolution IS NULL
  AND m.publish_time >= %(start)s
  AND m.publish_time < %(end)s
ON CONFLICT DO NOTHING
