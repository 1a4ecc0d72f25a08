-- Returns which messages the shards of projects must keep: everything from the span `since` on (null: nothing), and
-- before it the `spans` that have outstanding messages.  A span is ten minutes of publish times, numbered from 1970
-- on.
--
-- The rules are those of read_oldest_pins.sql, for each shard separately.  Outstanding messages keep only their
-- spans, because so few of them can be moved to the stragglers.  The log of a deleted topic belongs to the projects
-- of its subscriptions.
-- parameters: projects text[], now timestamptz
-- columns: project, shard_id, head, since, spans
SELECT o.project, h.shard_id, h.head,
    floor(extract(epoch FROM least(
        (SELECT %(now)s - t.message_retention FROM topics AS t WHERE t.topic_id = h.topic_id),
        (
            SELECT min(%(now)s - s.message_retention)
            FROM subscriptions AS s
            WHERE s.topic_id = h.topic_id AND s.retain_acked_messages AND NOT s.detached
        ),
        (
            SELECT min(greatest(c.next_publish_time, %(now)s - s.message_retention))
            FROM subscriptions AS s
            JOIN cursors AS c ON c.subscription_id = s.subscription_id AND c.shard_id = h.shard_id
            WHERE s.topic_id = h.topic_id AND c.next_seq <= h.head
        ),
        (
            SELECT min(greatest(d.first_publish_time, %(now)s - s.message_retention))
            FROM subscriptions AS s
            CROSS JOIN LATERAL (
                SELECT min(a.first_publish_time) AS first_publish_time
                FROM delivery_attempts AS a
                WHERE a.shard_id = h.shard_id AND a.subscription_id = s.subscription_id AND a.ordering_key IS NOT NULL
            ) AS d
            WHERE s.topic_id = h.topic_id AND NOT s.detached AND d.first_publish_time IS NOT NULL
        ),
        (
            SELECT min(p.next_publish_time)
            FROM snapshots AS n
            JOIN snapshot_positions AS p ON p.snapshot_id = n.snapshot_id AND p.shard_id = h.shard_id
            WHERE n.topic_id = h.topic_id AND n.expire_time > %(now)s
        ),
        (
            SELECT min(p.first_publish_time)
            FROM snapshots AS n
            JOIN snapshot_outstanding AS p ON p.snapshot_id = n.snapshot_id AND p.shard_id = h.shard_id
            WHERE n.topic_id = h.topic_id AND n.expire_time > %(now)s
        )
    )) / 600)::int8 AS since,
    ARRAY(
        SELECT DISTINCT d.span
        FROM subscriptions AS s
        CROSS JOIN LATERAL (
            SELECT DISTINCT
                floor(extract(epoch FROM unnest(ARRAY[a.first_publish_time, a.last_publish_time])) / 600)::int8
            FROM delivery_attempts AS a
            WHERE a.shard_id = h.shard_id
              AND a.subscription_id = s.subscription_id
              AND a.ordering_key IS NULL
              AND a.last_publish_time > %(now)s - s.message_retention
        ) AS d (span)
        WHERE s.topic_id = h.topic_id AND NOT s.detached
    ) AS spans
-- OFFSET 0 forces a lookup of each topic's shards, even if the planner estimates a full scan to be cheaper.
FROM (
    SELECT p.project, t.topic_id
    FROM unnest(%(projects)s) AS p (project)
    JOIN topics AS t ON t.name > p.project || '/topics/' AND t.name < p.project || '/topics0'
    UNION
    SELECT p.project, s.topic_id
    FROM unnest(%(projects)s) AS p (project)
    JOIN subscriptions AS s ON s.name > p.project || '/subscriptions/' AND s.name < p.project || '/subscriptions0'
    WHERE s.topic = '_deleted-topic_'
) AS o
CROSS JOIN LATERAL (
    SELECT s.shard_id, s.topic_id, s.head FROM shards AS s WHERE s.topic_id = o.topic_id OFFSET 0
) AS h
