-- Returns since when the message that has waited longest has been waiting for each subscription in a shard: since
-- it was published, or since it became due again.  There is no row for a subscription for which no message waits.
--
-- The statement locks nothing, and counts messages that a filter does not match.  Both conditions on the cursor are
-- needed, as in find_fresh_batches.sql.
-- parameters: shard_id int8, subscription_ids int8[], sinces timestamptz[], now timestamptz
-- columns: subscription_id, waiting_since
SELECT p.subscription_id, least(fresh.publish_time, due.next_delivery_at) AS waiting_since
FROM unnest(%(subscription_ids)s::int8[], %(sinces)s::timestamptz[]) AS p (subscription_id, since)
JOIN cursors AS c ON c.shard_id = %(shard_id)s AND c.subscription_id = p.subscription_id
LEFT JOIN LATERAL (
    SELECT a.next_delivery_at
    FROM delivery_attempts AS a
    WHERE a.shard_id = %(shard_id)s
      AND a.subscription_id = p.subscription_id
      AND a.next_delivery_at >= c.due_floor
      AND a.next_delivery_at <= %(now)s
    ORDER BY a.next_delivery_at
    LIMIT 1
) AS due ON true
LEFT JOIN LATERAL (
    SELECT l.publish_time
    FROM message_batches AS l
    WHERE l.shard_id = %(shard_id)s
      AND (l.publish_time, l.last_seq) >= (c.next_publish_time, c.next_seq)
      AND l.publish_time >= c.next_publish_time
      AND l.publish_time >= p.since
    ORDER BY l.publish_time, l.last_seq
    LIMIT 1
) AS fresh ON true
WHERE fresh.publish_time IS NOT NULL OR due.next_delivery_at IS NOT NULL
