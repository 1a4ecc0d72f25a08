-- Returns what shards must keep, for each kind and owner, by the rules of read_kept.sql but without reading the
-- catalog.
--
-- Each shard is read by one statement, so that messages which a claim or a seek moves from one of these tables to
-- another are not missed.  A `span` is ten minutes of publish times; its outstanding messages were published until
-- `time`.
-- parameters: shard_ids int8[]
-- columns: shard_id, kind, owner, head, time, span
SELECT shard_id, kind, owner, head, time, span
FROM (
    SELECT h.shard_id, 'head' AS kind, 0::int8 AS owner, h.head, NULL::timestamptz AS time, NULL::int8 AS span
    FROM shards AS h
    WHERE h.shard_id = ANY (%(shard_ids)s::int8[])
    UNION ALL
    SELECT c.shard_id, 'cursor', c.subscription_id, NULL, c.next_publish_time, NULL
    FROM cursors AS c
    JOIN shards AS h ON h.shard_id = c.shard_id
    WHERE c.shard_id = ANY (%(shard_ids)s::int8[]) AND h.shard_id = ANY (%(shard_ids)s::int8[]) AND c.next_seq <= h.head
    UNION ALL
    SELECT a.shard_id, 'key', a.subscription_id, NULL, min(a.first_publish_time), NULL
    FROM delivery_attempts AS a
    WHERE a.shard_id = ANY (%(shard_ids)s::int8[]) AND a.ordering_key IS NOT NULL
    GROUP BY a.shard_id, a.subscription_id
    UNION ALL
    SELECT d.shard_id, 'attempt', d.subscription_id, NULL, max(d.last_publish_time), d.span
    FROM (
        SELECT a.shard_id, a.subscription_id, a.last_publish_time,
               floor(extract(epoch FROM unnest(ARRAY[a.first_publish_time, a.last_publish_time])) / 600)::int8 AS span
        FROM delivery_attempts AS a
        WHERE a.shard_id = ANY (%(shard_ids)s::int8[]) AND a.ordering_key IS NULL
    ) AS d
    GROUP BY d.shard_id, d.subscription_id, d.span
    UNION ALL
    SELECT p.shard_id, 'snapshot', p.snapshot_id, NULL, p.next_publish_time, NULL
    FROM snapshot_positions AS p
    WHERE p.shard_id = ANY (%(shard_ids)s::int8[])
    UNION ALL
    SELECT o.shard_id, 'snapshot', o.snapshot_id, NULL, min(o.first_publish_time), NULL
    FROM snapshot_outstanding AS o
    WHERE o.shard_id = ANY (%(shard_ids)s::int8[])
    GROUP BY o.shard_id, o.snapshot_id
) AS kept
