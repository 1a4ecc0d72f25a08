-- Dead letters of a subscription in a shard of their topic, from a position on, of which nothing is recorded but what
-- their attributes say: brokers of release 0.1.0 made them.  Those that `matches` are chosen, and what is made of them is
-- let through by the subscription's own filter; the last one scanned comes whether it is or not.
-- parameters: shard_id int8, after_publish_time timestamptz, after_seq int8, until timestamptz, source text,
--     added text[], filter_path jsonpath, body_path jsonpath, own_filter_path jsonpath, own_body_path jsonpath,
--     id_shards int8[], id_seqs int8[], max_scanned int8, max_matched int8
-- columns: seq, publish_time, ordering_key, matches
SELECT c.seq, c.publish_time, c.ordering_key, c.matches
FROM (
    SELECT l.seq, l.publish_time, l.ordering_key,
           l.attributes @> %(source)s::text::jsonb
           AND NOT l.attributes ? 'broker-source-message-id'
           AND (
               cardinality(%(id_seqs)s::int8[]) = 0
               OR (%(shard_id)s, l.seq) IN (
                   SELECT i.shard_id, i.seq FROM unnest(%(id_shards)s::int8[], %(id_seqs)s::int8[]) AS i (shard_id, seq)
               )
           )
           AND (%(filter_path)s::jsonpath IS NULL OR coalesce(l.attributes @@ %(filter_path)s::jsonpath, false))
           AND (%(body_path)s::jsonpath IS NULL OR coalesce(
               message_matches(l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath), false
           ))
           AND (%(own_filter_path)s::jsonpath IS NULL OR coalesce(
               (l.attributes - %(added)s::text[]) @@ %(own_filter_path)s::jsonpath, false
           ))
           AND (%(own_body_path)s::jsonpath IS NULL OR coalesce(
               message_matches(l.attributes - %(added)s::text[], l.body, l.publish_time, %(own_body_path)s::jsonpath),
               false
           ))
           AND NOT EXISTS (
               SELECT FROM dead_letters AS d
               WHERE d.shard_id = %(shard_id)s AND d.publish_time = l.publish_time AND d.seq = l.seq
           ) AS matches,
           lead(l.seq) OVER (ORDER BY l.publish_time, l.seq) IS NULL AS is_last
    FROM (
        (
            SELECT m.seq, m.publish_time, m.ordering_key, m.attributes, m.body
            FROM straggler_messages AS m
            WHERE m.shard_id = %(shard_id)s
              AND (m.publish_time, m.last_seq) > (%(after_publish_time)s, %(after_seq)s)
              AND m.publish_time >= %(after_publish_time)s
              AND m.publish_time <= %(until)s
              AND m.seq > %(after_seq)s
            ORDER BY m.publish_time, m.last_seq, m.seq
            LIMIT %(max_scanned)s
        )
        UNION ALL
        (
            SELECT m.seq, m.publish_time, m.ordering_key, m.attributes, m.body
            FROM messages AS m
            WHERE m.shard_id = %(shard_id)s
              AND (m.publish_time, m.last_seq) > (%(after_publish_time)s, %(after_seq)s)
              AND m.publish_time >= %(after_publish_time)s
              AND m.publish_time <= %(until)s
              AND m.seq > %(after_seq)s
            ORDER BY m.publish_time, m.last_seq, m.seq
            LIMIT %(max_scanned)s
        )
        ORDER BY publish_time, seq
        LIMIT %(max_scanned)s
    ) AS l
) AS c
WHERE c.matches OR c.is_last
ORDER BY c.publish_time, c.seq
LIMIT %(max_matched)s
