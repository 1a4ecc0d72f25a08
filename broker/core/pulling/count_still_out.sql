-- Returns how many messages of each attempt are outstanding: neither acknowledged nor nacked, and within their ack
-- deadline.
-- parameters: shard_ids int8[], subscription_ids int8[], attempt_ids int8[], now timestamptz
SELECT a.number, sum(bit_count(coalesce(substring(d.open FROM 1 FOR d.out_count), d.open)))::int8
FROM unnest(%(shard_ids)s::int8[], %(subscription_ids)s::int8[], %(attempt_ids)s::int8[]) WITH ORDINALITY
    AS a (shard_id, subscription_id, attempt_id, number)
JOIN delivery_attempts AS d
    ON d.shard_id = a.shard_id AND d.subscription_id = a.subscription_id AND d.attempt_id = a.attempt_id
WHERE d.status = 'delivering' AND d.next_delivery_at > %(now)s
GROUP BY a.number
