-- Returns the next `max_rows` subscriptions between two names, in the order of names.
-- parameters: after text, before text, max_rows int8
-- columns: subscription_id, name
SELECT subscription_id, name
FROM subscriptions
WHERE name > %(after)s AND name < %(before)s
ORDER BY name
LIMIT %(max_rows)s
