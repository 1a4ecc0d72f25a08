-- The cursors of all subscriptions in a shard of a dead-letter topic, locked as claims lock them.
-- parameters: shard_id int8
-- columns: subscription_id, name, next_publish_time, next_seq, due_floor, first_seq, retention, filter_path, ordered
SELECT c.subscription_id, s.name, c.next_publish_time, c.next_seq, c.due_floor, c.first_seq,
       extract(epoch FROM greatest(s.message_retention, t.message_retention))::float8 AS retention,
       s.filter_path::text AS filter_path, s.enable_message_ordering AS ordered
FROM cursors AS c
JOIN subscriptions AS s USING (subscription_id)
LEFT JOIN topics AS t USING (topic_id)
WHERE c.shard_id = %(shard_id)s
ORDER BY c.subscription_id
FOR UPDATE OF c
