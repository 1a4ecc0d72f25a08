-- Returns the committed rows of the outbox that no earlier pass has found: the first ones by number, up to a count
-- and about `max_bytes`.  There is a row of nulls if there are none.
--
-- * `floor`, `xids`, `xmax`: of an earlier pass whose rows were all taken.  Transactions that it did not see were
--   either in progress then (in `xids`, or from `xmax` on), or began to write later and took numbers beyond
--   `floor`.  So a pass skips the rows that were deleted before that one, however long vacuum is held back.
-- * `kept`: topics and subscriptions whose rows are skipped; `behind`: projects whose rows are skipped.
-- * `now_xids`, `now_xmax`: the values of this pass.
--
-- `n + 0` makes PostgreSQL use the index on xid instead of reading all numbers below.
-- parameters: floor int8, xids int8[], xmax int8, kept text[], behind text[], max_rows int8, max_bytes int8
-- columns: now_xids, now_xmax, n, xid, role, written_at, name, topic_id, subscription_id, size, ordering_key,
--     attributes, data, ack_ids, nack
WITH fresh AS MATERIALIZED (
    (SELECT n, size FROM outbox WHERE n > %(floor)s AND name <> ALL(%(kept)s)
          AND 'projects/' || split_part(name, '/', 2) <> ALL(%(behind)s) ORDER BY n LIMIT %(max_rows)s)
    UNION ALL
    SELECT n, size FROM outbox WHERE xid = ANY(%(xids)s) AND n + 0 <= %(floor)s AND name <> ALL(%(kept)s)
          AND 'projects/' || split_part(name, '/', 2) <> ALL(%(behind)s)
    UNION ALL
    SELECT n, size FROM outbox WHERE xid >= %(xmax)s AND n + 0 <= %(floor)s AND name <> ALL(%(kept)s)
          AND 'projects/' || split_part(name, '/', 2) <> ALL(%(behind)s)
),
chosen AS (
    SELECT n
    FROM (
        SELECT n, sum(size) OVER (ORDER BY n) - size AS before
        FROM (SELECT n, size FROM fresh ORDER BY n LIMIT %(max_rows)s) AS first
    ) AS counted
    WHERE before < %(max_bytes)s
)
SELECT looked.now_xids, looked.now_xmax, s.n, s.xid, s.role, s.written_at, s.name, s.topic_id, s.subscription_id,
       s.size, s.ordering_key, s.attributes::text AS attributes, s.data, s.ack_ids, s.nack
FROM (
    SELECT ARRAY(SELECT xid::text::int8 FROM pg_snapshot_xip(pg_current_snapshot()) AS x (xid)) AS now_xids,
           pg_snapshot_xmax(pg_current_snapshot())::text::int8 AS now_xmax
) AS looked
LEFT JOIN outbox AS s ON s.n = ANY(ARRAY(SELECT n FROM chosen))
ORDER BY s.n
