-- Returns the names of subscriptions that have a dead-letter policy, with its number of attempts, and those of the
-- subscriptions in `subscription_ids`.
-- parameters: subscription_ids int8[]
-- columns: subscription_id, name, max_attempts
SELECT subscription_id, name,
       CASE WHEN dead_letter_topic IS NOT NULL THEN max_delivery_attempts END::int8 AS max_attempts
FROM subscriptions
WHERE NOT detached AND (dead_letter_topic IS NOT NULL OR subscription_id = ANY (%(subscription_ids)s::int8[]))
