-- Returns by shard the first and last sequence of the messages that expired for a subscription between two times,
-- and about how many there are.
-- parameters: subscription_id int8, shard_ids int8[], since timestamptz, until timestamptz
-- columns: shard_id, first_seq, last_seq, count
SELECT j.shard_id, min(lower(j.seqs)) AS first_seq, max(upper(j.seqs)) - 1 AS last_seq, sum((
    SELECT sum(upper(r.range) - lower(r.range)) FROM unnest(j.seqs) AS r (range)
))::int8 AS count
FROM delivery_journal AS j
WHERE j.subscription_id = %(subscription_id)s
  AND j.time >= %(since)s
  AND j.time <= %(until)s
  AND j.event = 'EXPIRED'
  AND j.shard_id = ANY (%(shard_ids)s::int8[])
GROUP BY j.shard_id
