-- Returns the shards of the next dead letters of a subscription: those that read_dead_letters.sql would return
-- first.  The range of times is compared for each dead letter and not looked up in an index: most ranges contain
-- all dead letters, which each step would sort.
-- parameters: source_shard_id int8, subscription_id int8, from_seq int8, since timestamptz, until timestamptz,
--     reasons text[], id_shards int8[], id_seqs int8[], max_scanned int8
-- columns: shard_id
SELECT DISTINCT d.shard_id
FROM (
    SELECT c.shard_id
    FROM dead_letters AS c
    WHERE c.source_shard_id = %(source_shard_id)s
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
    ORDER BY c.source_seq
    LIMIT %(max_scanned)s
) AS d
ORDER BY d.shard_id
