-- Whole rows are copied, acked neighbours included: which bits are open may change at any moment.
INSERT INTO straggler_messages (shard_id, publish_time, seq, ordering_key, attributes, data)
SELECT m.shard_id, m.publish_time, m.seq, m.ordering_key, m.attributes, m.data
FROM delivery_attempts AS d
JOIN messages AS m
  ON m.shard_id = d.shard_id
 AND m.publish_time >= d.first_publish_time
 AND m.publish_time <= d.last_publish_time
 AND m.seq <@ d.seqs
WHERE d.first_publish_time < %(end)s
  AND d.last_publish_time >= %(start)s
  AND m.publish_time >= %(start)s
  AND m.publish_time < %(end)s
ON CONFLICT DO NOTHING
