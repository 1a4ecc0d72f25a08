-- Which subscriptions give messages up, and after how many attempts; of these others the names.
-- parameters: subscription_ids int8[]
-- columns: subscription_id, name, max_attempts
SELECT subscription_id, name,
       CASE WHEN dead_letter_topic IS NOT NULL THEN max_delivery_attempts END::int8 AS max_attempts
FROM subscriptions
WHERE NOT detached AND (dead_letter_topic IS NOT NULL OR subscription_id = ANY (%(subscription_ids)s::int8[]))
