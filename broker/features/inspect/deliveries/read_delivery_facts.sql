-- Returns what is stored of a message for each of some subscriptions, without locks.  `rows`: the rows of delivered
-- messages that contain it.  `key_row`: the row of its ordering key, for subscriptions that are `ordered`.
-- parameters: shard_id int8, seq int8, ordering_key text, subscription_ids int8[], ordered bool[]
-- columns: subscription_id, next_seq, first_seq, rows, key_row
SELECT s.subscription_id, c.next_seq, c.first_seq,
       (
           SELECT jsonb_agg(jsonb_build_object(
               'status', a.status, 'attempt_number', a.attempt_number, 'seqs', a.seqs::text, 'open', a.open::text,
               'next_delivery_at', CASE WHEN a.status <> 'exhausted' THEN a.next_delivery_at END,
               'delivered_at', a.delivered_at, 'ordering_key', a.ordering_key,
               'out_count', a.out_count, 'waiting', NULL,
               'attempt_numbers', coalesce(a.attempt_numbers::text, '{}'), 'failure', a.failure,
               'redriven', coalesce(a.redriven, false)
           ))::text
           FROM delivery_attempts AS a
           WHERE a.shard_id = %(shard_id)s AND a.subscription_id = s.subscription_id AND a.seqs @> %(seq)s
       ) AS rows,
       k.key_row
FROM unnest(%(subscription_ids)s::int8[], %(ordered)s::bool[]) AS s (subscription_id, ordered)
LEFT JOIN cursors AS c ON c.shard_id = %(shard_id)s AND c.subscription_id = s.subscription_id
LEFT JOIN LATERAL (
    SELECT jsonb_build_object(
               'status', a.status, 'attempt_number', a.attempt_number, 'seqs', a.seqs::text, 'open', a.open::text,
               'next_delivery_at', CASE WHEN a.status <> 'exhausted' THEN a.next_delivery_at END,
               'ordering_key', a.ordering_key, 'out_count', a.out_count, 'attempt_numbers', a.attempt_numbers::text,
               'waiting', (a.waiting * int8multirange(int8range(%(seq)s, %(seq)s, '[]')))::text,
               'redriven', coalesce(a.redriven, false)
           )::text AS key_row
    FROM delivery_attempts AS a
    WHERE s.ordered
      AND a.shard_id = %(shard_id)s AND a.subscription_id = s.subscription_id
      AND a.ordering_key = %(ordering_key)s
    OFFSET 0  -- a look into the index for each subscription, not all that have the key out for each
) AS k ON true
