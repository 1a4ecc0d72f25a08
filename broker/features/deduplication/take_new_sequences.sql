-- Gives out sequences and numbers as take_sequences.sql and take_id_seqs.sql do, if no message of the flush is a
-- repeat; otherwise there is no row.  It runs after lock_head.sql.  The statements that follow recognize by
-- `flush`, a number that is unique to this flush, whether any were given out.
-- parameters: shard_id int8, count int8, later int8, now timestamptz, digests packed uuid[], since timestamptz, flush int8
-- columns: head, last_publish_time, last_id_seq
UPDATE shards
SET head = head + %(count)s,
    last_id_seq = last_id_seq + %(later)s,
    last_publish_time = greatest(last_publish_time, %(now)s),
    last_flush = %(flush)s
WHERE shard_id = %(shard_id)s
  AND open
  AND frozen_at IS NULL
  AND NOT EXISTS (
      SELECT
      FROM message_identities AS i
      WHERE i.shard_id = %(shard_id)s AND i.digest = ANY(%(digests)s) AND i.published_at > %(since)s
  )
RETURNING head, last_publish_time, last_id_seq
