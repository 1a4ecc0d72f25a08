-- Returns which messages are repeats, by their number, and the sequences from which the ids of the earlier messages
-- are derived.  It runs after take_new_sequences.sql, and returns nothing if that has given out sequences.
-- parameters: shard_id int8, digests packed uuid[], since timestamptz, flush int8
-- columns: number, seq
SELECT d.number, known.seq
FROM unnest(%(digests)s) WITH ORDINALITY AS d (digest, number)
CROSS JOIN LATERAL (
    SELECT i.seq
    FROM message_identities AS i
    WHERE i.shard_id = %(shard_id)s AND i.digest = d.digest AND i.published_at > %(since)s
    ORDER BY i.published_at DESC
    LIMIT 1
) AS known
WHERE EXISTS (SELECT FROM shards AS s WHERE s.shard_id = %(shard_id)s AND s.last_flush IS DISTINCT FROM %(flush)s)
