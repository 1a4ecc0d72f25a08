-- Makes messages that precede the cursor wait for their ordering keys: in the row of the key, or in a new row that
-- is due at once.
--
-- Rows of keys are created and deleted only under the lock of the cursor, which the caller holds.  The messages
-- that the cursor has yet to pass, `from_seqs` on, wait as well, as in every row of a key.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[], ordering_keys text[],
--     seqs text[], from_seqs int8[], first_publish_times timestamptz[], last_publish_times timestamptz[], redriven bool[]
INSERT INTO delivery_attempts AS d (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at,
    seqs, open, first_publish_time, last_publish_time, ordering_key, out_count, attempt_numbers, waiting, redriven
)
SELECT s.shard_id, k.subscription_id, k.attempt_id, 0, 'pending', 0, %(now)s, %(now)s, '{}', '',
       k.first_publish_time, k.last_publish_time, k.ordering_key, 0, '{}',
       k.seqs::int8multirange + int8multirange(int8range(k.from_seq, NULL)), nullif(k.redriven, false)
FROM shards AS s, unnest(
    %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(ordering_keys)s::text[], %(seqs)s::text[],
    %(from_seqs)s::int8[], %(first_publish_times)s::timestamptz[], %(last_publish_times)s::timestamptz[],
    %(redriven)s::bool[]
) AS k (subscription_id, attempt_id, ordering_key, seqs, from_seq, first_publish_time, last_publish_time, redriven)
WHERE s.shard_id = %(shard_id)s
ON CONFLICT (shard_id, subscription_id, ordering_key) WHERE ordering_key IS NOT NULL DO UPDATE
SET waiting = d.waiting + excluded.waiting,
    redriven = coalesce(d.redriven, excluded.redriven),
    first_publish_time = least(d.first_publish_time, excluded.first_publish_time),
    last_publish_time = greatest(d.last_publish_time, excluded.last_publish_time)
