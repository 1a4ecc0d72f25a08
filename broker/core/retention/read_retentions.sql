-- Returns the part of read_oldest_pins.sql that is in the catalog: since when each subscription retains its
-- messages, and, in a row without a subscription, the oldest time that topics retain.  `retains_acked`:
-- acknowledged messages are retained as well.
SELECT subscription_id, %(now)s::timestamptz - message_retention AS since, detached,
       retain_acked_messages AND NOT detached AS retains_acked
FROM subscriptions
UNION ALL
SELECT NULL, min(%(now)s::timestamptz - message_retention), false, true FROM topics
