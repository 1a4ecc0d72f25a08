-- Removes sequences from those that wait for an ordering key.  The rows are locked by the caller.
-- parameters: shard_id int8, subscription_ids int8[], ordering_keys text[], seqs text[]
WITH stopped AS MATERIALIZED (
    SELECT w.subscription_id, w.ordering_key, w.seqs::int8multirange AS seqs
    FROM unnest(%(subscription_ids)s::int8[], %(ordering_keys)s::text[], %(seqs)s::text[])
        AS w (subscription_id, ordering_key, seqs)
)
UPDATE delivery_attempts AS d
SET waiting = d.waiting - w.seqs
FROM stopped AS w
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = w.subscription_id
  AND d.ordering_key = w.ordering_key
