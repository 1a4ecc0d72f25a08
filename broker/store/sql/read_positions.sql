-- Where a subscription stands in each shard of its topic (B3).  One statement, one moment.
SELECT c.shard_id, c.next_publish_time, c.next_seq, h.head,
       greatest(h.head - c.next_seq + 1, 0) AS unclaimed,
       (
           SELECT coalesce(sum(bit_count(d.open)), 0)::int8
           FROM delivery_attempts AS d
           WHERE d.shard_id = c.shard_id AND d.subscription_id = c.subscription_id
       ) AS outstanding
FROM cursors AS c
JOIN shards AS h USING (shard_id)
WHERE c.subscription_id = %(subscription_id)s
ORDER BY c.shard_id
