-- Returns dead letters of a subscription, found by their source messages (`source_`) or by their own ids.
-- parameters: subscription_id int8, source_shard_ids int8[], source_seqs int8[], shard_ids int8[],
--     publish_times timestamptz[], seqs int8[]
-- columns: shard_id, publish_time, seq, source_shard_id, source_seq, resolution, resolved_at, resolved_by,
--     successor_shard, successor_seq, ordering_key, expires_at
SELECT d.shard_id, d.publish_time, d.seq, d.source_shard_id, d.source_seq, d.resolution, d.resolved_at, d.resolved_by,
       d.successor_shard, d.successor_seq, l.ordering_key, l.expires_at
FROM (
    SELECT a.shard_id, a.publish_time, a.seq, a.source_shard_id, a.source_seq, a.resolution, a.resolved_at, a.resolved_by,
           a.successor_shard, a.successor_seq
    FROM unnest(%(source_shard_ids)s::int8[], %(source_seqs)s::int8[]) AS w (source_shard_id, source_seq)
    JOIN dead_letters AS a
      ON a.source_shard_id = w.source_shard_id
     AND a.source_seq = w.source_seq
     AND a.subscription_id = %(subscription_id)s
    UNION
    SELECT a.shard_id, a.publish_time, a.seq, a.source_shard_id, a.source_seq, a.resolution, a.resolved_at, a.resolved_by,
           a.successor_shard, a.successor_seq
    FROM unnest(%(shard_ids)s::int8[], %(publish_times)s::timestamptz[], %(seqs)s::int8[])
        AS w (shard_id, publish_time, seq)
    JOIN dead_letters AS a
      ON a.shard_id = w.shard_id
     AND a.publish_time = w.publish_time
     AND a.seq = w.seq
     AND a.subscription_id = %(subscription_id)s
) AS d
LEFT JOIN LATERAL (
    SELECT b.ordering_key, b.expires_at
    FROM message_batches AS b
    WHERE b.shard_id = d.shard_id
      AND b.publish_time = d.publish_time
      AND b.last_seq >= d.seq
      AND b.last_seq < d.seq + 1000
      AND b.last_seq - b.count < d.seq
    UNION ALL
    SELECT b.ordering_key, b.expires_at
    FROM straggler_batches AS b
    WHERE b.shard_id = d.shard_id
      AND b.publish_time = d.publish_time
      AND b.last_seq >= d.seq
      AND b.last_seq < d.seq + 1000
      AND b.last_seq - b.count < d.seq
    LIMIT 1
) AS l ON true
