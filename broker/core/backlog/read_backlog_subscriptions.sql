-- Returns the columns of subscriptions that lock_backlogs.sql returns, for distributed tables.
-- parameters: subscription_ids int8[]
-- columns: subscription_id, name, retention, filter_path, body_path, ordered
SELECT s.subscription_id, s.name,
       extract(epoch FROM greatest(s.message_retention, t.message_retention))::float8 AS retention,
       s.filter_path::text AS filter_path, s.body_path::text AS body_path, s.enable_message_ordering AS ordered
FROM subscriptions AS s
LEFT JOIN topics AS t USING (topic_id)
WHERE s.subscription_id = ANY (%(subscription_ids)s::int8[])
