-- What the catalog says of pins: since when each subscription retains its messages, and the oldest times for which
-- topics, and subscriptions that retain what is acked, do.
SELECT subscription_id, %(now)s::timestamptz - message_retention AS since, detached,
       retain_acked_messages AND NOT detached AS retains_acked
FROM subscriptions
UNION ALL
SELECT NULL, min(%(now)s::timestamptz - message_retention), false, true FROM topics
