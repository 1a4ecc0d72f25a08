-- Returns what the catalog says about the messages that the shards of projects must keep, for distributed tables;
-- read_kept.sql does the same in one statement.  `since`: a retention policy keeps everything published since then
-- (null: there is none).
-- parameters: projects text[], now timestamptz
-- columns: project, shard_id, since, subscription_ids, retained_since, detached, snapshot_ids
SELECT o.project, h.shard_id,
       least(
           (SELECT %(now)s - t.message_retention FROM topics AS t WHERE t.topic_id = o.topic_id),
           (
               SELECT min(%(now)s - s.message_retention)
               FROM subscriptions AS s
               WHERE s.topic_id = o.topic_id AND s.retain_acked_messages AND NOT s.detached
           )
       ) AS since,
       ARRAY(SELECT s.subscription_id FROM subscriptions AS s WHERE s.topic_id = o.topic_id ORDER BY s.subscription_id)
           AS subscription_ids,
       ARRAY(
           SELECT %(now)s - s.message_retention
           FROM subscriptions AS s WHERE s.topic_id = o.topic_id ORDER BY s.subscription_id
       ) AS retained_since,
       ARRAY(SELECT s.detached FROM subscriptions AS s WHERE s.topic_id = o.topic_id ORDER BY s.subscription_id)
           AS detached,
       ARRAY(
           SELECT n.snapshot_id FROM snapshots AS n WHERE n.topic_id = o.topic_id AND n.expire_time > %(now)s
       ) AS snapshot_ids
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
JOIN known_shards AS h ON h.topic_id = o.topic_id
