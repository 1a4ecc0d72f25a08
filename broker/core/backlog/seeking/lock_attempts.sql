-- All that is out of a subscription in a shard, locked in key order as by everybody else.
SELECT count(*)
FROM (
    SELECT
    FROM delivery_attempts
    WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
    ORDER BY attempt_id, part
    FOR UPDATE
) AS locked
