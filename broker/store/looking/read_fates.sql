-- What is known of one message for each of some subscriptions; nothing is locked.  `rows`: what was handed out with it
-- among.  `held_by`: the first message that is out of its ordering key, and `waits` for it, before the cursor.  `body` is
-- null if it is too large to be read.
-- parameters: shard_id int8, seq int8, ordering_key text, attributes text, body bytea,
--     subscription_ids int8[]
-- columns: subscription_id, next_seq, first_seq, matches, rows, held_by, waits, redriven, dead_letter
SELECT s.subscription_id, c.next_seq, c.first_seq,
       (s.filter_path IS NULL OR %(attributes)s::jsonb @@ s.filter_path)
       AND (s.body_path IS NULL OR body_matches(%(attributes)s::jsonb, %(body)s::bytea, s.body_path)) AS matches,
       (
           SELECT jsonb_agg(jsonb_build_object(
               'status', a.status, 'attempt_number', a.attempt_number, 'seqs', a.seqs::text, 'open', a.open::text,
               'at', CASE WHEN a.status <> 'exhausted' THEN a.next_delivery_at END,
               'delivered_at', a.delivered_at, 'ordering_key', a.ordering_key,
               'out_count', coalesce(a.out_count, bit_length(a.open)),
               'attempt_numbers', coalesce(a.attempt_numbers::text, '{}'), 'failure', a.failure,
               'redriven', coalesce(a.redriven, false)
           ))::text
           FROM delivery_attempts AS a
           WHERE a.shard_id = %(shard_id)s AND a.subscription_id = s.subscription_id AND a.seqs @> %(seq)s
       ) AS rows,
       k.held_by, coalesce(k.waits, false) AS waits, coalesce(k.redriven, false) AS redriven,
       (
           SELECT jsonb_build_object(
               'shard_id', d.shard_id, 'seq', d.seq, 'publish_time', d.publish_time, 'reason', d.reason,
               'delivery_attempts', d.delivery_attempts
           )::text
           FROM dead_letters AS d
           WHERE d.source_shard_id = %(shard_id)s AND d.source_seq = %(seq)s AND d.subscription_id = s.subscription_id
           ORDER BY d.publish_time DESC
           LIMIT 1
       ) AS dead_letter
FROM subscriptions AS s
LEFT JOIN cursors AS c ON c.shard_id = %(shard_id)s AND c.subscription_id = s.subscription_id
LEFT JOIN LATERAL (
    SELECT CASE position(B'1' IN a.open)
               WHEN 0 THEN NULL
               WHEN 1 THEN lower(a.seqs)
               ELSE nth_sequence(a.seqs, position(B'1' IN a.open))
           END AS held_by,
           a.waiting @> %(seq)s AS waits, a.redriven
    FROM delivery_attempts AS a
    WHERE s.enable_message_ordering
      AND a.shard_id = %(shard_id)s AND a.subscription_id = s.subscription_id
      AND a.ordering_key = %(ordering_key)s
    OFFSET 0  -- a look into the index for each subscription, not all that have the key out for each
) AS k ON true
WHERE s.subscription_id = ANY(%(subscription_ids)s::int8[])
