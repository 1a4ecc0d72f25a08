-- Sets new deadlines for messages, and returns the bits that have changed.
--
-- A row whose remaining messages all change is updated in place.  Otherwise the changed bits are moved to a new
-- part of the same attempt, because the client keeps its ack ids.  The same attempt may be given several times, for
-- different messages; if all its open messages move, the last part stays in the row.  Acknowledged messages of the
-- row count as a part of their own, because a repeated ack of them succeeds until their own deadline.
--
-- * `statuses`: 'delivering' extends the deadline; 'nacked' makes the messages due, after the retry delay;
--   'exhausted' leaves them to the dead-letter forwarder; 'released' returns messages that reached no client, so
--   that the attempt does not count.
-- * `failures`: how the attempt failed, for dead letters (null: it did not fail).
-- * `minimum_backoffs`, `maximum_backoffs`: seconds, null without a retry policy.  They delay a nack by the number
--   of failures so far (model/retry_policy.py); `jitter` (0 to 0.1) is added to the delay.
--
-- A nack is final, because some clients send their initial extension of the deadline after it.  With exactly-once
-- delivery a deadline that has passed is final, too.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[], masks varbit[],
--     statuses text[], failures text[], next_delivery_ats timestamptz[], new_parts int8[],
--     minimum_backoffs float8[], maximum_backoffs float8[], exactly_once bool[], jitter float8
WITH asked AS (
    SELECT a.subscription_id, a.attempt_id, a.mask, a.status, a.failure, a.next_delivery_at, a.new_part,
           a.minimum_backoff, a.maximum_backoff, a.exactly_once
    FROM unnest(
        %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(masks)s::varbit[], %(statuses)s::text[],
        %(failures)s::text[], %(next_delivery_ats)s::timestamptz[], %(new_parts)s::int8[],
        %(minimum_backoffs)s::float8[], %(maximum_backoffs)s::float8[], %(exactly_once)s::bool[]
    ) AS a (subscription_id, attempt_id, mask, status, failure, next_delivery_at, new_part,
            minimum_backoff, maximum_backoff, exactly_once)
),
locked AS (
    SELECT d.*, asked.mask, asked.new_part, asked.failure AS new_failure,
           CASE asked.status WHEN 'released' THEN 'pending' ELSE asked.status END AS new_status,
           -- Subtracts 1 only once if the statement is repeated because its result was lost.
           d.attempt_number - (asked.status = 'released' AND d.status = 'delivering')::int AS new_number,
           asked.status = 'delivering' AND d.status = 'nacked'
               OR asked.exactly_once AND (d.status <> 'delivering' OR d.next_delivery_at <= %(now)s) AS is_over,
           CASE
               WHEN asked.status = 'exhausted' THEN 'infinity'
               WHEN asked.minimum_backoff IS NULL THEN asked.next_delivery_at
               ELSE asked.next_delivery_at
                    + least(asked.maximum_backoff, asked.minimum_backoff * 2.0 ^ least(d.attempt_number - 1, 32))
                    * (1 + %(jitter)s::float8) * interval '1 second'
           END AS new_delivery_at
    FROM delivery_attempts AS d
    JOIN asked USING (subscription_id, attempt_id)
    WHERE d.shard_id = %(shard_id)s AND d.ordering_key IS NULL
      AND CASE length(d.open) WHEN length(asked.mask) THEN bit_count(d.open & asked.mask) > 0 END
    ORDER BY d.subscription_id, d.attempt_id, d.part
    FOR UPDATE OF d
),
moved AS (
    SELECT *, open & mask AS moving, open & ~bit_or(mask) OVER of_row AS remaining,
           new_part = max(new_part) OVER of_row AND coalesce(bit_count(acked), 0) = 0
               AND bit_count(open & ~bit_or(mask) OVER of_row) = 0 AS is_whole
    FROM locked
    WHERE NOT is_over
    WINDOW of_row AS (PARTITION BY subscription_id, attempt_id, part)
),
whole AS (
    UPDATE delivery_attempts AS d
    SET status = moved.new_status,
        failure = moved.new_failure,
        attempt_number = moved.new_number,
        next_delivery_at = moved.new_delivery_at,
        open = moved.moving
    FROM moved
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = moved.subscription_id
      AND d.attempt_id = moved.attempt_id
      AND d.part = moved.part
      AND moved.is_whole
),
reduced AS (
    UPDATE delivery_attempts AS d
    SET open = moved.remaining
    FROM moved
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = moved.subscription_id
      AND d.attempt_id = moved.attempt_id
      AND d.part = moved.part
      AND (bit_count(moved.remaining) > 0 OR coalesce(bit_count(moved.acked), 0) > 0)
),
split AS (
    INSERT INTO delivery_attempts (
        shard_id, subscription_id, attempt_id, part, status, failure, attempt_number,
        next_delivery_at, delivered_at, seqs, open, acked, first_publish_time, last_publish_time, redriven
    )
    SELECT %(shard_id)s, subscription_id, attempt_id,
           new_part + row_number() OVER (PARTITION BY subscription_id, attempt_id, new_part ORDER BY part),
           new_status, new_failure, new_number, new_delivery_at, delivered_at, seqs, moving, acked & ~acked,
           first_publish_time, last_publish_time, redriven
    FROM moved
    WHERE NOT is_whole
)
SELECT subscription_id, attempt_id, moving::text FROM moved
