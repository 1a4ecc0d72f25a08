-- Counts the scheduled messages of shards, at most `most` of each shard.
-- parameters: shard_ids int8[], most int8
-- columns: messages
SELECT coalesce(sum(w.messages), 0)::int8 AS messages
FROM unnest(%(shard_ids)s) AS p (shard_id)
CROSS JOIN LATERAL (
    SELECT count(*) AS messages
    FROM (SELECT FROM scheduled_messages AS m WHERE m.shard_id = p.shard_id LIMIT %(most)s) AS counted
) AS w
