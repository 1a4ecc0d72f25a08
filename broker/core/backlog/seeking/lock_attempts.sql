-- Locks all delivery attempts of a subscription in a shard, in key order, as everywhere.
SELECT count(*)
FROM (
    SELECT
    FROM delivery_attempts
    WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
    ORDER BY attempt_id, part
    FOR UPDATE
) AS locked
