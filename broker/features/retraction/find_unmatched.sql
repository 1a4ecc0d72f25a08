-- Returns which messages the filters of subscriptions leave out.  Each message is given by its publish time and
-- sequence.
-- parameters: shard_id int8, subscription_ids int8[], publish_times timestamptz[], seqs int8[]
-- columns: subscription_id, seq
WITH found AS MATERIALIZED (
    SELECT w.publish_time, w.seq, m.attributes, m.body
    FROM unnest(%(publish_times)s::timestamptz[], %(seqs)s::int8[]) AS w (publish_time, seq)
    CROSS JOIN LATERAL (
        SELECT l.attributes, l.body
        FROM messages AS l
        WHERE l.shard_id = %(shard_id)s AND l.publish_time = w.publish_time AND l.last_seq >= w.seq
          AND l.last_seq < w.seq + 1000 AND l.seq = w.seq
        UNION ALL
        SELECT l.attributes, l.body
        FROM straggler_messages AS l
        WHERE l.shard_id = %(shard_id)s AND l.publish_time = w.publish_time AND l.last_seq >= w.seq
          AND l.last_seq < w.seq + 1000 AND l.seq = w.seq
        LIMIT 1
    ) AS m
)
SELECT s.subscription_id, f.seq
FROM subscriptions AS s
CROSS JOIN found AS f
WHERE s.subscription_id = ANY (%(subscription_ids)s::int8[])
  AND s.filter_path IS NOT NULL
  AND NOT (
      f.attributes @@ s.filter_path
      AND (s.body_path IS NULL OR message_matches(f.attributes, f.body, f.publish_time, s.body_path))
  )
