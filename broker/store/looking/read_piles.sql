-- Who has the messages of some shards.
-- parameters: shard_ids int8[]
-- columns: shard_id, topic, subscription_id, subscription, retention
SELECT h.shard_id, s.topic, s.subscription_id, s.name AS subscription,
       greatest(s.message_retention, (SELECT message_retention FROM topics WHERE topic_id = h.topic_id)) AS retention
FROM known_shards AS h
JOIN subscriptions AS s ON s.topic_id = h.topic_id
WHERE h.shard_id = ANY (%(shard_ids)s::int8[])
ORDER BY s.name
