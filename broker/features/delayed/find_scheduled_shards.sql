-- Returns the shards that have scheduled messages, and when the first of them is due.  It takes one or two index
-- lookups for each shard, however many messages are scheduled.  Frozen shards are left out, because nothing can be
-- appended to them.  `open` is false if the topic was deleted.
-- columns: shard_id, due_at, open
WITH RECURSIVE found (shard_id) AS (
    (SELECT shard_id FROM scheduled_messages ORDER BY shard_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT m.shard_id FROM scheduled_messages AS m WHERE m.shard_id > f.shard_id ORDER BY m.shard_id LIMIT 1
    )
    FROM found AS f
    WHERE f.shard_id IS NOT NULL
)
SELECT f.shard_id, first.due_at, coalesce(s.open, false) AS open
FROM found AS f
LEFT JOIN shards AS s ON s.shard_id = f.shard_id
CROSS JOIN LATERAL (
    SELECT m.due_at FROM scheduled_messages AS m WHERE m.shard_id = f.shard_id ORDER BY m.due_at, m.id_seq LIMIT 1
) AS first
WHERE s.frozen_at IS NULL
