-- Sets new deadlines for messages of attempts with ordering keys, as modify_ack_deadline.sql does for attempts
-- without one, and returns the bits that were still outstanding.
--
-- The messages of a key in one response share the deadline of the first of them that is not acknowledged: none of
-- the later ones could be delivered before it.  A new deadline that does not name this message therefore changes
-- nothing.  A nack returns the message and all later ones of the key, acknowledged or not; earlier ones stay
-- outstanding.  Only the first message can be rejected ('exhausted', for the dead-letter forwarder).  Messages that
-- are 'released' are returned in the same way, but the attempt does not count, because they reached no client.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[], masks varbit[],
--     statuses text[], failures text[], next_delivery_ats timestamptz[], minimum_backoffs float8[], maximum_backoffs float8[],
--     exactly_once bool[], jitter float8
WITH asked AS (
    SELECT a.*, a.mask AS bits
    FROM unnest(
        %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(masks)s::varbit[], %(statuses)s::text[],
        %(failures)s::text[], %(next_delivery_ats)s::timestamptz[], %(minimum_backoffs)s::float8[], %(maximum_backoffs)s::float8[],
        %(exactly_once)s::bool[]
    ) AS a (subscription_id, attempt_id, mask, status, failure, next_delivery_at, minimum_backoff, maximum_backoff,
            exactly_once)
),
locked AS (
    SELECT d.subscription_id, d.attempt_id, d.part, d.open, d.attempt_numbers, d.status, d.next_delivery_at AS due, asked.failure,
           CASE asked.status WHEN 'released' THEN 'pending' ELSE asked.status END AS new_status,
           (asked.status = 'released' AND d.status = 'delivering')::int AS uncounted, d.out_count, asked.next_delivery_at, asked.minimum_backoff, asked.maximum_backoff, asked.exactly_once,
           d.open & asked.bits & ~((d.open | ~d.open) >> d.out_count) AS hit
    FROM delivery_attempts AS d
    JOIN asked USING (subscription_id, attempt_id)
    WHERE d.shard_id = %(shard_id)s AND length(d.open) = length(asked.bits) AND d.out_count IS NOT NULL
    ORDER BY d.subscription_id, d.attempt_id, d.part
    FOR UPDATE OF d
),
named AS (
    SELECT *, position(B'1' IN hit) AS first, position(B'1' IN open) AS head,
           CASE
               WHEN new_status = 'exhausted' THEN 'infinity'
               WHEN minimum_backoff IS NULL THEN next_delivery_at
               ELSE next_delivery_at + least(
                   maximum_backoff,
                   minimum_backoff * 2.0 ^ least(attempt_numbers[position(B'1' IN hit)] - 1, 32)
               ) * (1 + %(jitter)s::float8) * interval '1 second'
           END AS new_delivery_at
    FROM locked
    WHERE bit_count(hit) > 0
      AND NOT (exactly_once AND (status <> 'delivering' OR due <= %(now)s))
      AND NOT (new_status = 'exhausted' AND position(B'1' IN hit) > position(B'1' IN open))
),
extended AS (
    UPDATE delivery_attempts AS d
    SET status = 'delivering', next_delivery_at = n.new_delivery_at
    FROM named AS n
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = n.subscription_id
      AND d.attempt_id = n.attempt_id
      AND d.part = n.part
      AND n.new_status = 'delivering'
      AND n.first = n.head
),
returned AS (
    UPDATE delivery_attempts AS d
    SET open = n.open | ((n.open | ~n.open) >> (n.first - 1)),
        out_count = n.first - 1,
        attempt_numbers = CASE WHEN n.uncounted = 0 THEN d.attempt_numbers ELSE ARRAY(
            SELECT CASE WHEN ordinal BETWEEN n.first AND n.out_count THEN number - 1 ELSE number END
            FROM unnest(d.attempt_numbers) WITH ORDINALITY AS numbers (number, ordinal)
            ORDER BY ordinal
        ) END,
        retry_at = n.new_delivery_at,
        failure = n.failure,
        status = CASE WHEN n.first = n.head THEN n.new_status ELSE d.status END,
        next_delivery_at = CASE WHEN n.first = n.head THEN n.new_delivery_at ELSE d.next_delivery_at END
    FROM named AS n
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = n.subscription_id
      AND d.attempt_id = n.attempt_id
      AND d.part = n.part
      AND n.new_status <> 'delivering'
)
SELECT subscription_id, attempt_id, hit::text FROM named
