-- Acknowledges messages of attempts with ordering keys; attempts without a key that are found are only reported for
-- exactly-once delivery.
--
-- Each ack clears its bit.  A claim that redelivers messages starts at the first bit that is set, so an ack takes
-- effect only once all earlier messages of its key are acknowledged.  When no delivered message of a row is left,
-- the row becomes due at once, so that a claim checks whether more messages of the key are waiting
-- (tests/interleavings/test_ordering_rules.py).  With exactly-once delivery an ack is refused if earlier messages
-- of the key are not acknowledged, or if the deadline has passed.
--
-- Returns the bits that are acknowledged, those that were refused because earlier messages are not acknowledged,
-- and whether the row is due; then the bits that this statement acknowledged, with the sequences and the attempt
-- numbers of the row.  All of these are computed from the locked rows, because a join with the updated rows would
-- compare each row with every other one.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[], masks varbit[],
--     exactly_once bool[]
WITH asked AS (
    SELECT a.subscription_id, a.attempt_id, a.mask, a.exactly_once
    FROM unnest(
        %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(masks)s::varbit[], %(exactly_once)s::bool[]
    ) AS a (subscription_id, attempt_id, mask, exactly_once)
),
locked AS (
    SELECT d.subscription_id, d.attempt_id, d.part, d.ordering_key, d.open, d.acked, d.out_count,
           d.seqs, d.attempt_number, d.attempt_numbers, asked.mask, asked.exactly_once, d.open & ~d.open AS none,
           NOT asked.exactly_once OR (d.status = 'delivering' AND d.next_delivery_at > %(now)s) AS live
    FROM delivery_attempts AS d
    JOIN asked USING (subscription_id, attempt_id)
    WHERE d.shard_id = %(shard_id)s AND length(d.open) = length(asked.mask)
    ORDER BY d.subscription_id, d.attempt_id, d.part
    FOR UPDATE OF d
),
named AS (
    SELECT *, CASE WHEN live THEN open & mask & ~(~none >> out_count) ELSE none END AS hit
    FROM locked
    WHERE ordering_key IS NOT NULL
),
turned AS (
    SELECT *, CASE
        WHEN exactly_once AND position(B'1' IN open & ~hit) > 0
            THEN hit & ~(~none >> (position(B'1' IN open & ~hit) - 1))
        ELSE hit
    END AS cleared
    FROM named
),
judged AS (
    SELECT *, bit_count(cleared) > 0 AS is_changed,
           position(B'1' IN open & ~cleared) BETWEEN 1 AND out_count AS is_out
    FROM turned
),
written AS (
    UPDATE delivery_attempts AS d
    SET open = s.open & ~s.cleared,
        acked = d.acked | s.cleared,
        status = CASE WHEN s.is_out THEN d.status ELSE 'pending' END,
        next_delivery_at = CASE WHEN s.is_out THEN d.next_delivery_at ELSE greatest(%(now)s, d.retry_at) END
    FROM judged AS s
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = s.subscription_id
      AND d.attempt_id = s.attempt_id
      AND d.part = s.part
      AND s.is_changed
)
SELECT subscription_id, attempt_id,
       (cleared | coalesce(acked & mask, cleared))::text AS acked,
       (hit & ~cleared)::text AS out_of_order,
       is_changed AND NOT is_out AS is_due,
       cleared::text, seqs::text, attempt_number, attempt_numbers::text
FROM judged
UNION ALL
SELECT subscription_id, attempt_id, (acked & mask)::text, none::text, false, none::text, seqs::text, attempt_number, NULL
FROM locked
WHERE ordering_key IS NULL AND exactly_once
