-- Locks attempts that are about to change, and returns their state before the change, for the journal.  They are
-- locked in key order, as by the statements that change them.  Run it twice to find rows that were split while it
-- waited.
-- parameters: shard_id int8, subscription_ids int8[], attempt_ids int8[]
-- columns: subscription_id, attempt_id, seqs, open, attempt_number, attempt_numbers, out_count
SELECT d.subscription_id, d.attempt_id, d.seqs::text, d.open::text, d.attempt_number, d.attempt_numbers::text,
       d.out_count
FROM delivery_attempts AS d
JOIN unnest(%(subscription_ids)s::int8[], %(attempt_ids)s::int8[]) AS a (subscription_id, attempt_id)
    USING (subscription_id, attempt_id)
WHERE d.shard_id = %(shard_id)s
ORDER BY d.subscription_id, d.attempt_id, d.part
FOR UPDATE OF d
