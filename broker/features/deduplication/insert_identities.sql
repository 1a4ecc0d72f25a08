-- Inserts the identities of messages, by which repeats are recognized, if take_new_sequences.sql has given out
-- sequences in this transaction.
--
-- `ranks`: the rank of each message among the sequences that were given out, from 1; for a scheduled message the
-- negative rank among the numbers.
-- parameters: shard_id int8, count int8, later int8, digests packed uuid[], ranks int8[], flush int8
INSERT INTO message_identities (shard_id, digest, seq, published_at)
SELECT s.shard_id, d.digest,
       CASE WHEN d.rank > 0 THEN s.head - %(count)s + d.rank ELSE s.last_id_seq - %(later)s - d.rank END,
       s.last_publish_time
FROM shards AS s, unnest(%(digests)s, %(ranks)s) AS d (digest, rank)
WHERE s.shard_id = %(shard_id)s AND s.last_flush = %(flush)s
