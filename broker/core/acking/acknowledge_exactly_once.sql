-- Acknowledges messages of subscriptions with exactly-once delivery.  It differs from acknowledge.sql in two
-- points: only messages that are outstanding within their ack deadline can be acknowledged; and the row is kept
-- until its deadline, with a bit in `acked` for each message, so that a repeated ack can be distinguished from a
-- stale one.
--
-- Returns the bits that are acknowledged now, by this statement or before it (`acked`), and those that this
-- statement acknowledged (`cleared`), with the sequences and the attempt number of the row.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[],
--     masks varbit[]
WITH asked AS (
    SELECT a.subscription_id, a.attempt_id, a.mask
    FROM unnest(%(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(masks)s::varbit[])
        AS a (subscription_id, attempt_id, mask)
),
locked AS (
    SELECT d.subscription_id, d.attempt_id, d.part, d.open, coalesce(d.acked, d.open & ~d.open) AS acked, asked.mask,
           d.seqs, d.attempt_number, d.status = 'delivering' AND d.next_delivery_at > %(now)s AS live
    FROM delivery_attempts AS d
    JOIN asked USING (subscription_id, attempt_id)
    WHERE d.shard_id = %(shard_id)s AND d.ordering_key IS NULL
      AND CASE length(d.open)
          WHEN length(asked.mask) THEN bit_count((d.open | coalesce(d.acked, d.open)) & asked.mask) > 0
      END
    ORDER BY d.subscription_id, d.attempt_id, d.part
    FOR UPDATE OF d
),
now_acked AS (
    UPDATE delivery_attempts AS d
    SET open = l.open & ~l.mask, acked = l.acked | (l.open & l.mask)
    FROM locked AS l
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = l.subscription_id
      AND d.attempt_id = l.attempt_id
      AND d.part = l.part
      AND l.live
      AND bit_count(l.open & l.mask) > 0
)
SELECT subscription_id, attempt_id,
       (CASE WHEN live THEN (open | acked) & mask ELSE acked & mask END)::text AS acked,
       (CASE WHEN live THEN open & mask ELSE open & ~open END)::text AS cleared, seqs::text, attempt_number
FROM locked
