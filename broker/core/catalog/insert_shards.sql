-- Inserts shards of one topic, which differ only in their ordinals and levels.
INSERT INTO shards (topic_id, ordinal, last_publish_time, open, frozen_at, level)
SELECT %(topic_id)s, n.ordinal, %(last_publish_time)s, %(open)s, %(frozen_at)s, n.level
FROM unnest(%(ordinals)s::int4[], %(levels)s::int4[]) AS n (ordinal, level)
RETURNING shard_id, topic_id, level
