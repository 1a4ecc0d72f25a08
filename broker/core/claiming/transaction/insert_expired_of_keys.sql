-- Records in the journal the messages that waited in the log for their ordering key, and whose retention passed
-- before the key became free: the first `max_messages` of each key.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], ordering_keys text[],
--     first_publish_times timestamptz[], waiting text[], next_seqs int8[], sinces timestamptz[], filter_paths text[],
--     body_paths text[], bucket int8, max_messages int8
WITH passed AS MATERIALIZED (
    SELECT k.subscription_id, m.seq / %(bucket)s AS bucket, range_agg(int8range(m.seq, m.seq + 1)) AS seqs
    FROM unnest(
        %(subscription_ids)s::int8[], %(ordering_keys)s::text[], %(first_publish_times)s::timestamptz[],
        %(waiting)s::text[], %(next_seqs)s::int8[], %(sinces)s::timestamptz[], %(filter_paths)s::text[],
        %(body_paths)s::text[]
    ) AS k (subscription_id, ordering_key, first_publish_time, waiting, next_seq, since, filter_path, body_path)
    CROSS JOIN LATERAL (
        SELECT l.seq
        FROM messages AS l
        WHERE l.shard_id = %(shard_id)s
          AND l.ordering_key = k.ordering_key
          AND l.publish_time >= k.first_publish_time
          AND l.publish_time < k.since
          AND l.seq < k.next_seq
          AND l.seq <@ k.waiting::int8multirange
          AND (k.filter_path IS NULL OR l.attributes @@ k.filter_path::jsonpath)
          AND (k.body_path IS NULL OR message_matches(l.attributes, l.body, l.publish_time, k.body_path::jsonpath))
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(max_messages)s
    ) AS m
    GROUP BY k.subscription_id, m.seq / %(bucket)s
)
INSERT INTO delivery_journal (
    shard_id, subscription_id, bucket, time, event, attempt, seqs, principal, client, answer
)
SELECT %(shard_id)s, subscription_id, bucket, %(now)s, 'EXPIRED', 0, seqs, '', '', '' FROM passed
