-- Stores the states of push endpoints.
--
-- The lock prevents subscriptions from being deleted meanwhile, so that no state outlives its subscription.  A
-- pause ends only by resume_pushes, so a state without a reason keeps the reason that is stored.  The state of an
-- endpoint that the subscription does not have any more is not stored.
WITH known AS (
    SELECT subscription_id, settings #>> '{pushConfig,pushEndpoint}' AS endpoint
    FROM subscriptions
    WHERE subscription_id = ANY(%(subscription_ids)s::bigint[])
    ORDER BY subscription_id
    FOR KEY SHARE
)
INSERT INTO push_states AS p (
    subscription_id, breaker, changed_at, consecutive_failures, window_size, outstanding_requests, retry_at,
    paused_reason, failing_since, failed_requests, last_status, last_reason, failing_reported, failing_messages,
    late_answers
)
SELECT s.subscription_id, s.breaker, s.changed_at, s.consecutive_failures, s.window_size, s.outstanding_requests,
    s.retry_at, s.paused_reason, s.failing_since, s.failed_requests, s.last_status, s.last_reason,
    s.failing_reported, s.failing_messages, s.late_answers
FROM unnest(
    %(subscription_ids)s::bigint[],
    %(breakers)s::text[],
    %(changed_at)s::timestamptz[],
    %(consecutive_failures)s::integer[],
    %(windows)s::integer[],
    %(outstanding_requests)s::integer[],
    %(retry_at)s::timestamptz[],
    %(paused_reasons)s::text[],
    %(endpoints)s::text[],
    %(failing_since)s::timestamptz[],
    %(failed_requests)s::bigint[],
    %(last_statuses)s::integer[],
    %(last_reasons)s::text[],
    %(failing_reported)s::boolean[],
    %(failing_messages)s::jsonb[],
    %(late_answers)s::jsonb[]
) AS s(subscription_id, breaker, changed_at, consecutive_failures, window_size, outstanding_requests, retry_at,
    paused_reason, endpoint, failing_since, failed_requests, last_status, last_reason, failing_reported,
    failing_messages, late_answers)
JOIN known AS k ON k.subscription_id = s.subscription_id AND (s.endpoint IS NULL OR s.endpoint = k.endpoint)
ORDER BY s.subscription_id
ON CONFLICT (subscription_id) DO UPDATE SET
    breaker = excluded.breaker,
    changed_at = excluded.changed_at,
    consecutive_failures = excluded.consecutive_failures,
    window_size = excluded.window_size,
    outstanding_requests = excluded.outstanding_requests,
    retry_at = excluded.retry_at,
    paused_reason = coalesce(nullif(excluded.paused_reason, ''), p.paused_reason),
    failing_since = excluded.failing_since,
    failed_requests = excluded.failed_requests,
    last_status = excluded.last_status,
    last_reason = excluded.last_reason,
    failing_reported = excluded.failing_reported,
    failing_messages = excluded.failing_messages,
    late_answers = excluded.late_answers
