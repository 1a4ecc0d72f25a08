-- Writes samples of subscriptions that still exist.  Rates are computed since the previous sample, or since the
-- pass that began at `confirmed_at`, if that is later and has confirmed the values of an older row.
INSERT INTO lag_samples AS l (
    subscription_id, sampled_at, undelivered_messages, is_estimated, undelivered_bytes, oldest_unacked_at,
    outstanding_messages, blocked_messages, dead_letters, published_messages, state, details
)
SELECT w.subscription_id, %(sampled_at)s, w.undelivered_messages, w.is_estimated, w.undelivered_bytes,
       w.oldest_unacked_at, w.outstanding_messages, w.blocked_messages, w.dead_letters, w.published_messages,
       w.state, w.details
FROM unnest(
    %(subscription_id)s::bigint[],
    %(undelivered_messages)s::bigint[],
    %(is_estimated)s::boolean[],
    %(undelivered_bytes)s::bigint[],
    %(oldest_unacked_at)s::timestamptz[],
    %(outstanding_messages)s::bigint[],
    %(blocked_messages)s::bigint[],
    %(dead_letters)s::bigint[],
    %(published_messages)s::bigint[],
    %(state)s::text[],
    %(details)s::jsonb[]
) AS w (subscription_id, undelivered_messages, is_estimated, undelivered_bytes, oldest_unacked_at,
    outstanding_messages, blocked_messages, dead_letters, published_messages, state, details)
JOIN subscriptions AS s ON s.subscription_id = w.subscription_id
ORDER BY w.subscription_id
ON CONFLICT (subscription_id) DO UPDATE SET
    sampled_at = excluded.sampled_at,
    undelivered_messages = excluded.undelivered_messages,
    is_estimated = excluded.is_estimated,
    undelivered_bytes = excluded.undelivered_bytes,
    oldest_unacked_at = excluded.oldest_unacked_at,
    outstanding_messages = excluded.outstanding_messages,
    blocked_messages = excluded.blocked_messages,
    dead_letters = excluded.dead_letters,
    published_messages = excluded.published_messages,
    incoming_rate = greatest(excluded.published_messages - l.published_messages, 0)
        / nullif(extract(epoch FROM excluded.sampled_at - greatest(l.sampled_at, %(confirmed_at)s)), 0)::float8,
    outgoing_rate = greatest(
        greatest(excluded.published_messages - l.published_messages, 0)
        - (excluded.undelivered_messages - l.undelivered_messages), 0
    ) / nullif(extract(epoch FROM excluded.sampled_at - greatest(l.sampled_at, %(confirmed_at)s)), 0)::float8,
    state = excluded.state,
    details = excluded.details
