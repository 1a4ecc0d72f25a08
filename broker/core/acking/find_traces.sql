-- Returns the messages of attempts that carry a trace context in their attributes, with the sequences of their
-- attempt; at most `max_messages`.
-- parameters: shard_id int8, subscription_ids int8[], attempt_ids int8[], max_messages int8
-- columns: subscription_id, attempt_id, seqs, seq, attributes
SELECT n.subscription_id, n.attempt_id, a.seqs::text AS seqs, m.seq, m.attributes::text AS attributes
FROM unnest(%(subscription_ids)s::int8[], %(attempt_ids)s::int8[]) AS n (subscription_id, attempt_id)
CROSS JOIN LATERAL (
    SELECT d.seqs, d.first_publish_time, d.last_publish_time
    FROM delivery_attempts AS d
    WHERE d.shard_id = %(shard_id)s AND d.subscription_id = n.subscription_id AND d.attempt_id = n.attempt_id
    ORDER BY d.part
    LIMIT 1
) AS a
CROSS JOIN LATERAL (
    SELECT l.seq, l.attributes
    FROM messages AS l
    WHERE l.shard_id = %(shard_id)s
      AND (l.publish_time, l.last_seq) >= (a.first_publish_time, lower(a.seqs))
      AND (l.publish_time, l.last_seq) < (a.last_publish_time, upper(a.seqs) + 1000)
      AND l.publish_time >= a.first_publish_time
      AND l.publish_time <= a.last_publish_time
      AND l.seq <@ a.seqs
      AND (l.attributes ? 'googclient_traceparent' OR l.attributes ? 'traceparent')
    LIMIT %(max_messages)s
) AS m
LIMIT %(max_messages)s
