-- Returns the messages of a subscription in a shard that were delivered and are not settled, and those before the
-- cursor that wait for their ordering key (`waiting`; at most `max_waiting` of each key).
SELECT d.seqs::text, d.open::text, d.ordering_key IS NOT NULL, coalesce(held.waiting::text, '{}')
FROM delivery_attempts AS d
LEFT JOIN LATERAL (
    SELECT range_agg(int8range(w.seq, w.seq + 1)) AS waiting
    FROM (
        SELECT m.seq
        FROM cursors AS c
        JOIN messages AS m USING (shard_id)
        WHERE c.shard_id = %(shard_id)s
          AND c.subscription_id = %(subscription_id)s
          AND m.shard_id = %(shard_id)s
          AND m.ordering_key = d.ordering_key
          AND m.publish_time >= d.first_publish_time
          AND m.publish_time <= c.next_publish_time
          AND (m.publish_time, m.seq) < (c.next_publish_time, c.next_seq)
          AND m.seq <@ d.waiting
        LIMIT %(max_waiting)s
    ) AS w
) AS held ON d.ordering_key IS NOT NULL AND NOT isempty(d.waiting)
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = %(subscription_id)s
  AND (bit_count(d.open) > 0 OR d.ordering_key IS NOT NULL AND NOT isempty(d.waiting))
