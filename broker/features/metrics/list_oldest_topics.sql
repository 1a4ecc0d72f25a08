-- Returns the shards of the oldest topics.
-- parameters: max_topics int8
-- columns: name, shard_id
SELECT t.name, h.shard_id
FROM (SELECT topic_id, name FROM topics ORDER BY topic_id LIMIT %(max_topics)s) AS t
JOIN known_shards AS h ON h.topic_id = t.topic_id
