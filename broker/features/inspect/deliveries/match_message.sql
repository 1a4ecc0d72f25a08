-- Returns those of some subscriptions that exist, and whether the filter of each matches a message.  `body` is null
-- if the data is too large for filters.
-- parameters: subscription_ids int8[], attributes text, body bytea, publish_time timestamptz
-- columns: subscription_id, matches
SELECT s.subscription_id,
       (s.filter_path IS NULL OR %(attributes)s::jsonb @@ s.filter_path)
       AND (s.body_path IS NULL OR message_matches(
           %(attributes)s::jsonb, %(body)s::bytea, %(publish_time)s::timestamptz, s.body_path
       )) AS matches
FROM subscriptions AS s
WHERE s.subscription_id = ANY(%(subscription_ids)s::int8[])
