-- Returns the next messages of ordering keys, without their bodies: those that are redelivered, or those that wait
-- in the log before the cursor.  Each key has the sequences to read and a limit.
-- parameters: shard_id int8, subscription_ids int8[], ordering_keys text[], first_publish_times timestamptz[],
--     seqs text[], limits int8[], sinces timestamptz[], filter_paths text[], body_paths text[],
--     overhead int8
-- columns: run, seq, publish_time, batch, size, expires_at
WITH keys AS MATERIALIZED (
    SELECT k.number, k.ordering_key, k.first_publish_time, k.seqs::int8multirange AS seqs, k.max_messages, k.since,
           k.filter_path::jsonpath AS filter_path, k.body_path::jsonpath AS body_path, c.next_publish_time, c.next_seq
    FROM unnest(
        %(subscription_ids)s::int8[], %(ordering_keys)s::text[], %(first_publish_times)s::timestamptz[],
        %(seqs)s::text[], %(limits)s::int8[], %(sinces)s::timestamptz[], %(filter_paths)s::text[],
        %(body_paths)s::text[]
    ) WITH ORDINALITY AS k (
        subscription_id, ordering_key, first_publish_time, seqs, max_messages, since, filter_path, body_path, number
    )
    JOIN cursors AS c ON c.shard_id = %(shard_id)s AND c.subscription_id = k.subscription_id
)
SELECT k.number AS run, m.seq, m.publish_time, m.last_seq AS batch, m.size, m.expires_at
FROM keys AS k
CROSS JOIN LATERAL (
    SELECT l.seq, l.publish_time, l.last_seq, l.size + %(overhead)s AS size, l.expires_at
    FROM messages AS l
    WHERE l.shard_id = %(shard_id)s
      AND l.ordering_key = k.ordering_key
      AND (l.publish_time, l.last_seq) >= (k.first_publish_time, lower(k.seqs))
      AND (l.publish_time, l.seq) < (k.next_publish_time, k.next_seq)
      AND l.publish_time >= k.first_publish_time
      AND l.publish_time <= k.next_publish_time
      AND l.publish_time >= k.since
      AND l.seq <@ k.seqs
      AND (k.filter_path IS NULL OR l.attributes @@ k.filter_path)
      AND (k.body_path IS NULL OR message_matches(l.attributes, l.body, l.publish_time, k.body_path))
    ORDER BY l.publish_time, l.last_seq
    LIMIT k.max_messages
) AS m
ORDER BY k.number, m.seq
