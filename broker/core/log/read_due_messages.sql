-- Returns the messages of due rows.  Those beyond `max_bytes` are returned without their data: they exist, but this
-- claim does not take them.
--
-- Each run of sequences is one index range, in the log and among the stragglers.  The range ends 1,000 sequences
-- after the run, because the last message of the run may have any place in its batch, and no batch holds more than
-- 1,000.  The filter matters only for messages that were restored from a snapshot of a subscription with another
-- filter.
-- parameters: shard_id int8, first_publish_times timestamptz[], last_publish_times timestamptz[], seqs text[],
--     retained_since timestamptz, filter_path jsonpath, body_path jsonpath, max_bytes int8
-- columns: seq, publish_time, ordering_key, attributes, data, id_seq, expires_at
SELECT seq, publish_time, ordering_key, attributes,
       CASE WHEN coalesce(preceding_bytes, 0) < %(max_bytes)s THEN data END AS data, id_seq, expires_at
FROM (
    SELECT m.seq, m.publish_time, m.ordering_key, m.attributes::text AS attributes, m.data, m.id_seq, m.expires_at,
           sum(m.size) OVER (
               ORDER BY m.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM unnest(
        %(first_publish_times)s::timestamptz[], %(last_publish_times)s::timestamptz[], %(seqs)s::text[]
    ) AS run (first_publish_time, last_publish_time, seqs)
    CROSS JOIN LATERAL (
        SELECT l.seq, l.publish_time, l.ordering_key, l.attributes, l.data, l.size, l.id_seq, l.expires_at
        FROM messages AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (run.first_publish_time, lower(run.seqs::int8multirange))
          AND (l.publish_time, l.last_seq) < (run.last_publish_time, upper(run.seqs::int8multirange) + 1000)
          AND l.publish_time >= run.first_publish_time
          AND l.publish_time <= run.last_publish_time
          AND l.publish_time >= %(retained_since)s
          AND l.seq <@ run.seqs::int8multirange
          AND (%(filter_path)s::jsonpath IS NULL OR l.attributes @@ %(filter_path)s::jsonpath)
          AND (%(body_path)s::jsonpath IS NULL OR message_matches(
              l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath
          ))
        UNION ALL
        SELECT l.seq, l.publish_time, l.ordering_key, l.attributes, l.data, l.size, l.id_seq, l.expires_at
        FROM straggler_messages AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (run.first_publish_time, lower(run.seqs::int8multirange))
          AND (l.publish_time, l.last_seq) < (run.last_publish_time, upper(run.seqs::int8multirange) + 1000)
          AND l.publish_time >= %(retained_since)s
          AND l.seq <@ run.seqs::int8multirange
          AND (%(filter_path)s::jsonpath IS NULL OR l.attributes @@ %(filter_path)s::jsonpath)
          AND (%(body_path)s::jsonpath IS NULL OR message_matches(
              l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath
          ))
    ) AS m
) AS counted
ORDER BY seq
