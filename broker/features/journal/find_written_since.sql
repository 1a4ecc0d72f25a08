-- Returns the number before the first row since a time in the journal of a subscription; NULL: there is none.
-- Numbers are in the order of times, except for rows that several processes wrote at the same time.
-- parameters: subscription_id int8, since timestamptz, max_mixed int8
-- columns: number
SELECT min(w.number) - 1 AS number
FROM (
    SELECT number FROM delivery_journal
    WHERE subscription_id = %(subscription_id)s AND time >= %(since)s
    ORDER BY time
    LIMIT %(max_mixed)s
) AS w
