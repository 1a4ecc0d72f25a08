-- Who has the messages of some shards, and where each stands there (null: nowhere, it is detached).
-- parameters: shard_ids int8[]
-- columns: shard_id, topic, subscription_id, subscription, retention, next_seq
SELECT h.shard_id, s.topic, s.subscription_id, s.name AS subscription,
       greatest(s.message_retention, (SELECT message_retention FROM topics WHERE topic_id = h.topic_id)) AS retention,
       (SELECT next_seq FROM cursors WHERE subscription_id = s.subscription_id AND shard_id = h.shard_id) AS next_seq
FROM shards AS h
JOIN subscriptions AS s ON s.topic_id = h.topic_id
WHERE h.shard_id = ANY (%(shard_ids)s::int8[])
ORDER BY s.name
