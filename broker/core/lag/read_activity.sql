-- Returns when subscriptions were last used.
-- parameters: subscription_ids int8[]
-- columns: subscription_id, last_active_at
SELECT subscription_id, last_active_at FROM subscriptions WHERE subscription_id = ANY (%(subscription_ids)s::int8[])
