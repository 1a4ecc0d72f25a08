-- The messages of rows that are due, without their bodies: which of each run exist, are retained and match the filter
-- (it matters only to what was restored from a snapshot of a subscription with another one).  One index range a run of
-- sequences, in the log or among the stragglers.  It ends 1,000 further than the run does, for no batch holds more: the
-- last message may stand anywhere in its batch.  A row is what there is of a batch, for a row of each message would take
-- the broker twice as long to read.
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
