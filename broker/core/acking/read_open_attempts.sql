-- Returns which messages of attempts are outstanding: neither acknowledged nor nacked, and within their ack
-- deadline.
-- parameters: shard_id int8, subscription_id int8, attempt_ids int8[], now timestamptz
SELECT d.subscription_id, d.attempt_id,
       CASE WHEN d.status = 'delivering' AND d.next_delivery_at > %(now)s THEN
           coalesce(substring(d.open FROM 1 FOR d.out_count), d.open)::text
       ELSE '' END
FROM unnest(%(attempt_ids)s::int8[]) AS a (attempt_id)
JOIN delivery_attempts AS d
    ON d.shard_id = %(shard_id)s AND d.subscription_id = %(subscription_id)s AND d.attempt_id = a.attempt_id
