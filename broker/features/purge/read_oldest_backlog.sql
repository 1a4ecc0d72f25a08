-- Returns by shard a time before which no message of the subscription's backlog was published: neither the
-- delivered messages, nor those that the cursor has yet to pass.
-- parameters: subscription_id int8, shard_ids int8[]
-- columns: shard_id, publish_time
SELECT c.shard_id, least(c.next_publish_time, (
    SELECT min(a.first_publish_time)
    FROM delivery_attempts AS a
    WHERE a.shard_id = c.shard_id AND a.subscription_id = c.subscription_id
)) AS publish_time
FROM cursors AS c
WHERE c.subscription_id = %(subscription_id)s AND c.shard_id = ANY (%(shard_ids)s::int8[])
