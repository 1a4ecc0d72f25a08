-- Inserts events of the journal, in the transaction in which they happen.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], buckets int8[], events text[], attempts int8[],
--     seqs text[], principals text[], clients text[], answers text[]
INSERT INTO delivery_journal (
    shard_id, subscription_id, bucket, time, event, attempt, seqs, principal, client, answer
)
SELECT %(shard_id)s, subscription_id, bucket, %(now)s, event, attempt, seqs::int8multirange, principal, client, answer
FROM unnest(
    %(subscription_ids)s::int8[], %(buckets)s::int8[], %(events)s::text[], %(attempts)s::int8[], %(seqs)s::text[],
    %(principals)s::text[], %(clients)s::text[], %(answers)s::text[]
) WITH ORDINALITY AS r (subscription_id, bucket, event, attempt, seqs, principal, client, answer, line)
ORDER BY line
