-- Subtracts what a process has taken from buckets, and returns what they hold afterwards.
--
-- Rows are locked in one order, so that processes that balance at the same time wait for each other instead of
-- deadlocking.  A bucket fills at its rate, up to one second's worth.  `usage` is a moving average in which the
-- weight of earlier values falls to about a third in `memory` seconds.
-- parameters: projects text[], principals text[], quotas text[], rates float8[], taken float8[], now timestamptz,
--     memory float8
-- columns: project, principal, quota, held
INSERT INTO quota_buckets AS bucket (project, principal, quota, rate, held, usage, balanced_at)
SELECT t.project, t.principal, t.quota, t.rate, t.rate - t.taken, t.taken / %(memory)s, %(now)s
FROM unnest(
    %(projects)s::text[], %(principals)s::text[], %(quotas)s::text[], %(rates)s::float8[], %(taken)s::float8[]
) AS t(project, principal, quota, rate, taken)
ORDER BY t.project, t.principal, t.quota
ON CONFLICT (project, principal, quota) DO UPDATE SET
    rate = excluded.rate,
    held = least(
        excluded.rate,
        bucket.held
            + excluded.rate * greatest(0, extract(epoch FROM excluded.balanced_at - bucket.balanced_at)::float8)
    ) - (excluded.rate - excluded.held),
    usage = excluded.usage + bucket.usage * exp(
        -least(100, greatest(0, extract(epoch FROM excluded.balanced_at - bucket.balanced_at)::float8) / %(memory)s)
    ),
    balanced_at = greatest(bucket.balanced_at, excluded.balanced_at)
RETURNING project, principal, quota, held
