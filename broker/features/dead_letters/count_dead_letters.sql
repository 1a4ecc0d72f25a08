-- Counts the messages of a subscription that have chosen dead letters, by the reason for which they were
-- dead-lettered, from a sequence on.  It does not check whether the dead letters can be acted on.
-- parameters: source_shard_ids int8[], subscription_id int8, from_seq int8, since timestamptz, until timestamptz,
--     reasons text[], id_shards int8[], id_seqs int8[]
-- columns: reason, letters, messages
SELECT m.reason, sum(m.letters)::int8 AS letters, count(*) AS messages
FROM (
    SELECT c.reason, c.source_shard_id, c.source_seq, count(*) AS letters
    FROM dead_letters AS c
    WHERE c.source_shard_id = ANY (%(source_shard_ids)s::int8[])
      AND c.source_seq >= %(from_seq)s
      AND c.subscription_id = %(subscription_id)s
      AND (c.publish_time BETWEEN %(since)s AND %(until)s) IS TRUE
      AND (cardinality(%(reasons)s::text[]) = 0 OR c.reason = ANY (%(reasons)s::text[]))
      AND (
          cardinality(%(id_seqs)s::int8[]) = 0
          OR EXISTS (
              SELECT FROM unnest(%(id_shards)s::int8[], %(id_seqs)s::int8[]) AS i (shard_id, seq)
              WHERE (i.shard_id, i.seq) IN ((c.source_shard_id, c.source_seq), (c.shard_id, c.seq))
          )
      )
      AND c.resolution IS DISTINCT FROM 'edited'
    GROUP BY c.reason, c.source_shard_id, c.source_seq
) AS m
GROUP BY m.reason
ORDER BY m.reason
