-- Returns messages with their sizes, and whether they match the filter: for each run the messages with these
-- sequences between two publish times (and with the ordering key, if there is one).  At most `max_scanned` messages
-- are read.
SELECT m.seq, m.publish_time, m.ordering_key, m.expires_at, m.size, m.matches
FROM unnest(
    %(first_publish_times)s::timestamptz[], %(last_publish_times)s::timestamptz[], %(seqs)s::text[],
    %(ordering_keys)s::text[]
) AS run (first_publish_time, last_publish_time, seqs, ordering_key)
CROSS JOIN LATERAL (
    SELECT f.seq, f.publish_time, f.ordering_key, f.expires_at, f.size,
           (%(filter_path)s::jsonpath IS NULL OR f.attributes @@ %(filter_path)s::jsonpath)
           AND (%(body_path)s::jsonpath IS NULL OR message_matches(
               f.attributes, f.body, f.publish_time, %(body_path)s::jsonpath
           ))
               AS matches
    FROM (
        (
            SELECT * FROM messages AS l
            WHERE l.shard_id = %(shard_id)s
              AND (l.publish_time, l.last_seq) >= (run.first_publish_time, lower(run.seqs::int8multirange))
              AND l.publish_time >= run.first_publish_time
              AND l.publish_time <= run.last_publish_time
              AND l.seq <@ run.seqs::int8multirange
              AND (run.ordering_key IS NULL OR l.ordering_key = run.ordering_key)
            ORDER BY l.publish_time, l.last_seq
            LIMIT %(max_scanned)s
        )
        UNION ALL
        (
            SELECT * FROM straggler_messages AS l
            WHERE l.shard_id = %(shard_id)s
              AND (l.publish_time, l.last_seq) >= (run.first_publish_time, lower(run.seqs::int8multirange))
              AND l.publish_time <= run.last_publish_time
              AND l.seq <@ run.seqs::int8multirange
              AND (run.ordering_key IS NULL OR l.ordering_key = run.ordering_key)
            LIMIT %(max_scanned)s
        )
    ) AS f
) AS m
LIMIT %(max_scanned)s
