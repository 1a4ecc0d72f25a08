-- Returns the topics of some shards.
-- parameters: shard_ids int8[]
-- columns: shard_id, topic, retention
SELECT h.shard_id, t.name AS topic, t.message_retention AS retention
FROM known_shards AS h
JOIN topics AS t USING (topic_id)
WHERE h.shard_id = ANY (%(shard_ids)s::int8[])
