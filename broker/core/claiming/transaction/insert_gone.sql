-- Records in the journal as expired the messages of rows that do not exist in the log any more, except those that
-- were retracted, which the journal has already.  Messages that the log has from `filtered_sinces` on were left out
-- by the filter, and are not recorded.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], buckets int8[], attempts int8[], seqs text[],
--     filtered_sinces timestamptz[], last_publish_times timestamptz[]
WITH gone AS MATERIALIZED (
    SELECT w.subscription_id, w.bucket, w.attempt, w.seqs::int8multirange - coalesce((
        SELECT range_agg(int8range(r.seq, r.seq + 1))
        FROM retracted_messages AS r
        WHERE r.shard_id = %(shard_id)s
          AND r.seq >= lower(w.seqs::int8multirange)
          AND r.seq < upper(w.seqs::int8multirange)
    ), '{}') - coalesce((
        SELECT range_agg(int8range(m.seq, m.seq + 1))
        FROM messages AS m
        WHERE m.shard_id = %(shard_id)s
          AND (m.publish_time, m.last_seq) >= (w.filtered_since, lower(w.seqs::int8multirange))
          AND m.publish_time <= w.last_publish_time
          AND m.seq <@ w.seqs::int8multirange
    ), '{}') AS left
    FROM unnest(
        %(subscription_ids)s::int8[], %(buckets)s::int8[], %(attempts)s::int8[], %(seqs)s::text[],
        %(filtered_sinces)s::timestamptz[], %(last_publish_times)s::timestamptz[]
    ) AS w (subscription_id, bucket, attempt, seqs, filtered_since, last_publish_time)
)
INSERT INTO delivery_journal (
    shard_id, subscription_id, bucket, time, event, attempt, seqs, principal, client, answer
)
SELECT %(shard_id)s, g.subscription_id, g.bucket, %(now)s, 'EXPIRED', g.attempt, g.left, '', '', ''
FROM gone AS g
WHERE NOT isempty(g.left)
