-- Returns dead letters as read_dead_letters.sql does, without what the log has of them, which comes from
-- match_dead_letters.sql.
-- parameters: source_shard_id int8, subscription_id int8, from_seq int8, since timestamptz, until timestamptz,
--     reasons text[], id_shards int8[], id_seqs int8[], max_scanned int8
-- columns: shard_id, publish_time, seq, source_seq, source_publish_time, reason, delivery_attempts,
--     resolution
SELECT c.shard_id, c.publish_time, c.seq, c.source_seq, c.source_publish_time, c.reason, c.delivery_attempts, c.resolution
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
