-- Returns for each of some messages the last entry of the journal that settled it for a subscription, or undid
-- that.
-- parameters: shard_id int8, subscription_id int8, buckets int8[], seqs text, events text[]
-- columns: seq, event, time, client, answer
SELECT DISTINCT ON (s.seq) s.seq, j.event, j.time, j.client, j.answer
FROM delivery_journal AS j
CROSS JOIN LATERAL unnest(j.seqs * %(seqs)s::text::int8multirange) AS r (range)
CROSS JOIN LATERAL generate_series(lower(r.range), upper(r.range) - 1) AS s (seq)
WHERE j.shard_id = %(shard_id)s
  AND j.subscription_id = %(subscription_id)s
  AND j.bucket = ANY (%(buckets)s::int8[])
  AND j.event = ANY (%(events)s::text[])
  AND j.seqs && %(seqs)s::text::int8multirange
ORDER BY s.seq, j.number DESC
