-- Deletes rows of the journal that are older than their subscription's retention, that exceed the number of rows
-- that a subscription may have, or whose subscription was deleted.  It skips from subscription to subscription in
-- the index, however many rows each has.
WITH RECURSIVE told AS (
    (SELECT subscription_id FROM delivery_journal ORDER BY subscription_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.subscription_id
        FROM delivery_journal AS j
        WHERE j.subscription_id > told.subscription_id
        ORDER BY j.subscription_id
        LIMIT 1
    )
    FROM told
    WHERE told.subscription_id IS NOT NULL
),
kept AS (
    SELECT told.subscription_id,
           CASE
               WHEN s.subscription_id IS NULL THEN 'infinity'
               ELSE greatest(
                   %(now)s::timestamptz - coalesce(
                       (s.settings #>> '{extensions,journal,retention}')::interval,
                       interval '1 second' * %(kept_seconds)s::float8
                   ),
                   (
                       SELECT j.time
                       FROM delivery_journal AS j
                       WHERE j.subscription_id = told.subscription_id
                       ORDER BY j.time DESC
                       OFFSET %(max_rows)s
                       LIMIT 1
                   )
               )
           END AS since
    FROM told
    LEFT JOIN subscriptions AS s USING (subscription_id)
    WHERE told.subscription_id IS NOT NULL
)
DELETE FROM delivery_journal AS d
WHERE d.ctid = ANY (ARRAY(
    SELECT old.ctid
    FROM kept
    CROSS JOIN LATERAL (
        SELECT j.ctid
        FROM delivery_journal AS j
        WHERE j.subscription_id = kept.subscription_id AND j.time <= kept.since
        ORDER BY j.time
        LIMIT %(limit)s
    ) AS old
    LIMIT %(limit)s
))
