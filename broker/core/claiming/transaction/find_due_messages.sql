-- Returns the messages of due rows, without their bodies: those of each run that exist, are retained and match the
-- filter.  The filter matters only for messages that were restored from a snapshot of a subscription with another
-- filter.
--
-- Each run is one index range, in the log and among the stragglers.  The range ends 1,000 sequences after the run,
-- because the last message of the run may have any place in its batch, and no batch holds more than 1,000.  The
-- result has a row for each batch; reading a row for each message would take the broker twice as long.
-- parameters: shard_id int8, first_publish_times timestamptz[], last_publish_times timestamptz[], seqs text[],
--     sinces timestamptz[], filter_paths text[], body_paths text[], overhead int8
-- columns: run, publish_time, batch, expires_at, seqs, sizes
WITH runs AS MATERIALIZED (
    SELECT r.number, r.first_publish_time, r.last_publish_time, r.seqs::int8multirange AS seqs, r.since,
           r.filter_path::jsonpath AS filter_path, r.body_path::jsonpath AS body_path
    FROM unnest(
        %(first_publish_times)s::timestamptz[], %(last_publish_times)s::timestamptz[], %(seqs)s::text[],
        %(sinces)s::timestamptz[], %(filter_paths)s::text[], %(body_paths)s::text[]
    ) WITH ORDINALITY AS r (first_publish_time, last_publish_time, seqs, since, filter_path, body_path, number)
)
SELECT run.number AS run, m.publish_time, m.last_seq AS batch, m.expires_at,
       array_agg(m.seq) AS seqs, array_agg(m.size) AS sizes
FROM runs AS run
CROSS JOIN LATERAL (
    SELECT l.seq, l.publish_time, l.last_seq, l.size + %(overhead)s AS size, l.expires_at
    FROM messages AS l
    WHERE l.shard_id = %(shard_id)s
      AND (l.publish_time, l.last_seq) >= (run.first_publish_time, lower(run.seqs))
      AND (l.publish_time, l.last_seq) < (run.last_publish_time, upper(run.seqs) + 1000)
      AND l.publish_time >= run.since
      AND l.publish_time <= run.last_publish_time
      AND l.seq <@ run.seqs
      AND (run.filter_path IS NULL OR l.attributes @@ run.filter_path)
      AND (run.body_path IS NULL OR message_matches(l.attributes, l.body, l.publish_time, run.body_path))
    UNION ALL
    SELECT l.seq, l.publish_time, l.last_seq, l.size + %(overhead)s, l.expires_at
    FROM straggler_messages AS l
    WHERE l.shard_id = %(shard_id)s
      AND (l.publish_time, l.last_seq) >= (run.first_publish_time, lower(run.seqs))
      AND (l.publish_time, l.last_seq) < (run.last_publish_time, upper(run.seqs) + 1000)
      AND l.publish_time >= run.since
      AND l.seq <@ run.seqs
      AND (run.filter_path IS NULL OR l.attributes @@ run.filter_path)
      AND (run.body_path IS NULL OR message_matches(l.attributes, l.body, l.publish_time, run.body_path))
) AS m
GROUP BY run.number, m.publish_time, m.last_seq, m.expires_at
