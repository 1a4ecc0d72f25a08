-- Merges parts of attempts.  If clients extend messages one by one, each message gets a part of its own, which
-- every statement about the attempt has to read.
--
-- Parts are merged if they have the same status, attempt number and failure, and their deadlines lie in the same
-- cell of a grid.  A cell is as wide as a sixteenth of the time that is left, rounded down to a power of two, but
-- at least a quarter of a second.  The merged part gets the latest of the deadlines.  Cells do not move, and
-- smaller cells lie within larger ones, so repeated merges delay no message by more than the width of a cell.
-- Parts that are due at once (nacks) or never (exhausted) are merged whatever their times.  A part whose ack
-- deadline has passed is left alone: with exactly-once delivery that is final.
--
-- The statement waits for no lock; parts that are locked are left for the next run.  An ack that waits for a part
-- which is deleted here finds its message when it runs again, as after a split
-- (tests/interleavings/test_ack_rules.py).
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[]
WITH locked AS (
    SELECT d.subscription_id, d.attempt_id, d.part, d.status, d.attempt_number, d.failure, d.next_delivery_at,
           d.open, d.acked,
           CASE WHEN d.status <> 'delivering' AND d.next_delivery_at <= %(now)s OR d.status = 'exhausted' THEN NULL
                ELSE greatest(2.0 ^ floor(log(2.0, extract(epoch FROM d.next_delivery_at - %(now)s))) / 16, 0.25)
           END AS cell
    FROM unnest(%(subscription_ids)s::int8[], %(attempt_ids)s::int8[]) AS asked (subscription_id, attempt_id)
    JOIN delivery_attempts AS d USING (subscription_id, attempt_id)
    WHERE d.shard_id = %(shard_id)s AND d.ordering_key IS NULL
      AND (d.status <> 'delivering' OR d.next_delivery_at > %(now)s)
    ORDER BY d.subscription_id, d.attempt_id, d.part
    FOR UPDATE OF d SKIP LOCKED
),
alike AS (
    SELECT subscription_id, attempt_id, part,
           min(part) OVER same AS first, count(*) OVER same AS parts, max(next_delivery_at) OVER same AS latest,
           bit_or(open) OVER same AS open, bit_or(acked) OVER same AS acked
    FROM locked
    WINDOW same AS (
        PARTITION BY subscription_id, attempt_id, status, attempt_number, failure, cell,
                     CASE WHEN cell IS NOT NULL THEN ceil(extract(epoch FROM next_delivery_at) / cell) END
    )
),
merged AS (
    DELETE FROM delivery_attempts AS d
    USING alike AS a
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = a.subscription_id
      AND d.attempt_id = a.attempt_id
      AND d.part = a.part
      AND a.part <> a.first
)
UPDATE delivery_attempts AS d
SET open = a.open, acked = a.acked, next_delivery_at = a.latest
FROM alike AS a
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = a.subscription_id
  AND d.attempt_id = a.attempt_id
  AND d.part = a.part
  AND a.part = a.first AND a.parts > 1
