-- Attempts that are about to change, as they are before, for the journal; locked in key order as by what changes them.
-- Rows that somebody has split while this waited are found by running it twice.
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
