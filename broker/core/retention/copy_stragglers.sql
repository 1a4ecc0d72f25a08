-- Copies the outstanding messages of a partition to the stragglers.  Whole batches are copied, including messages
-- that are acknowledged, because the open bits may change at any moment.
INSERT INTO straggler_batches (shard_id, publish_time, last_seq, count, size, ordering_key, attributes, data,
                               shared_attributes, id_seqs, expires_at)
SELECT m.shard_id, m.publish_time, m.last_seq, m.count, m.size, m.ordering_key, m.attributes, m.data,
       m.shared_attributes, m.id_seqs, m.expires_at
FROM delivery_attempts AS d
JOIN message_batches AS m
  ON m.shard_id = d.shard_id
 AND m.publish_time >= d.first_publish_time
 AND m.publish_time <= d.last_publish_time
 AND int8range(m.last_seq - m.count, m.last_seq, '(]') && d.seqs
WHERE d.first_publish_time < %(end)s
  AND d.last_publish_time >= %(start)s
  AND m.publish_time >= %(start)s
  AND m.publish_time < %(end)s
ON CONFLICT DO NOTHING
