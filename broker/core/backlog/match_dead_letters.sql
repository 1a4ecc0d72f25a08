-- Returns the dead letters that still exist, in the log or among the stragglers, and whether they match the
-- filters.
-- parameters: shard_ids int8[], publish_times timestamptz[], seqs int8[], filter_path jsonpath, body_path jsonpath
-- columns: shard_id, seq, ordering_key, expires_at, matches
SELECT w.shard_id, w.seq, l.ordering_key, l.expires_at,
       (%(filter_path)s::jsonpath IS NULL OR coalesce(l.attributes @@ %(filter_path)s::jsonpath, false))
           AND (%(body_path)s::jsonpath IS NULL OR coalesce(
               message_matches(l.attributes, l.body, w.publish_time, %(body_path)s::jsonpath), false
           )) AS matches
FROM unnest(%(shard_ids)s::int8[], %(publish_times)s::timestamptz[], %(seqs)s::int8[]) AS w (shard_id, publish_time, seq)
CROSS JOIN LATERAL (
    SELECT m.ordering_key, m.expires_at, m.attributes, m.body
    FROM messages AS m
    WHERE m.shard_id = w.shard_id
      AND m.publish_time = w.publish_time
      AND m.last_seq >= w.seq
      AND m.last_seq < w.seq + 1000
      AND m.seq = w.seq
    UNION ALL
    SELECT m.ordering_key, m.expires_at, m.attributes, m.body
    FROM straggler_messages AS m
    WHERE m.shard_id = w.shard_id
      AND m.publish_time = w.publish_time
      AND m.last_seq >= w.seq
      AND m.last_seq < w.seq + 1000
      AND m.seq = w.seq
    LIMIT 1
) AS l
