-- The number before what was written since a time into the journal of a subscription; NULL: nothing was.  Numbers are in
-- the order of times but for what was written at once by several processes.
-- parameters: subscription_id int8, since timestamptz, max_mixed int8
-- columns: number
SELECT min(w.number) - 1 AS number
FROM (
    SELECT number FROM delivery_journal
    WHERE subscription_id = %(subscription_id)s AND time >= %(since)s
    ORDER BY time
    LIMIT %(max_mixed)s
) AS w
