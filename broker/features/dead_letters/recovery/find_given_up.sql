-- Returns those of some messages that a subscription has dead-lettered.
-- parameters: source_shard_id int8, subscription_id int8, seqs int8[]
-- columns: source_seq
SELECT DISTINCT d.source_seq
FROM dead_letters AS d
WHERE d.source_shard_id = %(source_shard_id)s
  AND d.source_seq = ANY (%(seqs)s::int8[])
  AND d.subscription_id = %(subscription_id)s
