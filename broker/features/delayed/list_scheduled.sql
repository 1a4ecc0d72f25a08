-- Returns a page of the scheduled messages of shards, in the order in which they are due, with the first
-- `preview_bytes` of their data.
-- parameters: shard_ids int8[], after timestamptz, after_id_seq int8, after_shard_id int8, max_messages int8,
--     preview_bytes int8
-- columns: shard_id, id_seq, due_at, accepted_at, ordering_key, attributes, data, data_size
SELECT m.shard_id, m.id_seq, m.due_at, m.accepted_at, m.ordering_key, m.attributes::text AS attributes,
       CASE WHEN %(preview_bytes)s > 0 THEN substr(m.data, 1, %(preview_bytes)s::int4) END AS data,
       octet_length(m.data) AS data_size
FROM shards AS s
CROSS JOIN LATERAL (
    SELECT * FROM scheduled_messages AS w
    WHERE w.shard_id = s.shard_id
      AND (w.due_at, w.id_seq) >= (%(after)s, %(after_id_seq)s)
      AND (w.due_at, w.id_seq, w.shard_id) > (%(after)s, %(after_id_seq)s, %(after_shard_id)s)
    ORDER BY w.due_at, w.id_seq
    LIMIT %(max_messages)s
) AS m
WHERE s.shard_id = ANY (%(shard_ids)s::int8[])
ORDER BY m.due_at, m.id_seq, m.shard_id
LIMIT %(max_messages)s
