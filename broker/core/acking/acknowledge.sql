-- Acknowledges messages of a shard: clears the bits of `masks` in the rows of their delivery attempts.
--
-- Returns, for each row, the bits that were still set and are cleared now.  Bits that are missing were cleared
-- before, or were moved to another part of the attempt by a statement that this one waited for.  The sequences and
-- the attempt number of the row are returned for the record of deliveries.
--
-- The rows are locked in key order first.  The remaining bits are computed from the locked rows, and only then are
-- rows deleted or updated.  "Delete if empty, else update" as two statements on rows that are not locked loses acks
-- (tests/interleavings/test_ack_rules.py).
-- parameters: shard_id int8, subscription_ids int8[], attempt_ids int8[], masks varbit[]
WITH asked AS (
    SELECT a.subscription_id, a.attempt_id, a.mask
    FROM unnest(%(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(masks)s::varbit[])
        AS a (subscription_id, attempt_id, mask)
),
locked AS (
    SELECT d.subscription_id, d.attempt_id, d.part, d.open, d.seqs, d.attempt_number, asked.mask
    FROM delivery_attempts AS d
    JOIN asked USING (subscription_id, attempt_id)
    WHERE d.shard_id = %(shard_id)s AND d.ordering_key IS NULL
      AND CASE length(d.open) WHEN length(asked.mask) THEN bit_count(d.open & asked.mask) > 0 END
    ORDER BY d.subscription_id, d.attempt_id, d.part
    FOR UPDATE OF d
),
rest AS (
    SELECT subscription_id, attempt_id, part, open & ~mask AS open, open & mask AS cleared, seqs, attempt_number
    FROM locked
),
finished AS (
    DELETE FROM delivery_attempts AS d
    USING rest
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = rest.subscription_id
      AND d.attempt_id = rest.attempt_id
      AND d.part = rest.part
      AND bit_count(rest.open) = 0
),
reduced AS (
    UPDATE delivery_attempts AS d
    SET open = rest.open
    FROM rest
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = rest.subscription_id
      AND d.attempt_id = rest.attempt_id
      AND d.part = rest.part
      AND bit_count(rest.open) > 0
)
SELECT subscription_id, attempt_id, cleared::text, seqs::text, attempt_number FROM rest
