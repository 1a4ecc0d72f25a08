-- Returns the first `max_scanned` chosen dead letters of a subscription by their source messages, from a sequence
-- of a shard on.  The filter does not choose them: `matches` says whether they match it.  `is_there`: the dead
-- letter is in the log, or among the stragglers.  The range of times is compared for each dead letter and not
-- looked up in an index: most ranges contain all dead letters, which each step would sort.
-- parameters: source_shard_id int8, subscription_id int8, from_seq int8, since timestamptz, until timestamptz,
--     reasons text[], id_shards int8[], id_seqs int8[], filter_path jsonpath, body_path jsonpath, max_scanned int8
-- columns: shard_id, publish_time, seq, source_seq, source_publish_time, reason, delivery_attempts,
--     resolution, is_there, ordering_key, expires_at, matches
SELECT d.shard_id, d.publish_time, d.seq, d.source_seq, d.source_publish_time, d.reason,
       d.delivery_attempts, d.resolution,
       l.seq IS NOT NULL AS is_there, l.ordering_key, l.expires_at,
       (%(filter_path)s::jsonpath IS NULL OR coalesce(l.attributes @@ %(filter_path)s::jsonpath, false))
           AND (%(body_path)s::jsonpath IS NULL OR coalesce(
               message_matches(l.attributes, l.body, d.publish_time, %(body_path)s::jsonpath), false
           )) AS matches
FROM (
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
) AS d
LEFT JOIN LATERAL (
    SELECT m.seq, m.ordering_key, m.expires_at, m.attributes, m.body
    FROM messages AS m
    WHERE m.shard_id = d.shard_id
      AND m.publish_time = d.publish_time
      AND m.last_seq >= d.seq
      AND m.last_seq < d.seq + 1000
      AND m.seq = d.seq
    UNION ALL
    SELECT m.seq, m.ordering_key, m.expires_at, m.attributes, m.body
    FROM straggler_messages AS m
    WHERE m.shard_id = d.shard_id
      AND m.publish_time = d.publish_time
      AND m.last_seq >= d.seq
      AND m.last_seq < d.seq + 1000
      AND m.seq = d.seq
    LIMIT 1
) AS l ON true
ORDER BY d.source_seq, d.publish_time, d.shard_id, d.seq
