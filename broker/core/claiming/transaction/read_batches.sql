-- Returns the bodies of the messages that a claim delivers, as whole batches.  Each range goes from a first to a
-- last batch, which are given by publish time and last sequence, in the log or among the stragglers.  Reading whole
-- batches costs little, because a batch of several messages is small.
-- parameters: shard_id int8, first_publish_times timestamptz[], first_batches int8[], last_publish_times timestamptz[],
--     last_batches int8[]
-- columns: publish_time, batch, ordering_key, attributes, data, shared, id_seqs
SELECT b.publish_time, b.last_seq AS batch, b.ordering_key, b.attributes::text[] AS attributes, b.data,
       b.shared_attributes::text AS shared, b.id_seqs
FROM unnest(
    %(first_publish_times)s::timestamptz[], %(first_batches)s::int8[], %(last_publish_times)s::timestamptz[],
    %(last_batches)s::int8[]
) AS r (first_publish_time, first_batch, last_publish_time, last_batch)
CROSS JOIN LATERAL (
    SELECT l.publish_time, l.last_seq, l.ordering_key, l.attributes, l.data, l.shared_attributes, l.id_seqs
    FROM message_batches AS l
    WHERE l.shard_id = %(shard_id)s
      AND (l.publish_time, l.last_seq) >= (r.first_publish_time, r.first_batch)
      AND (l.publish_time, l.last_seq) <= (r.last_publish_time, r.last_batch)
      AND l.publish_time >= r.first_publish_time
      AND l.publish_time <= r.last_publish_time
    UNION ALL
    SELECT l.publish_time, l.last_seq, l.ordering_key, l.attributes, l.data, l.shared_attributes, l.id_seqs
    FROM straggler_batches AS l
    WHERE l.shard_id = %(shard_id)s
      AND (l.publish_time, l.last_seq) >= (r.first_publish_time, r.first_batch)
      AND (l.publish_time, l.last_seq) <= (r.last_publish_time, r.last_batch)
) AS b
