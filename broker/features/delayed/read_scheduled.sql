-- parameters: shard_id int8, id_seq int8
-- columns: shard_id, id_seq, due_at, accepted_at, ordering_key, attributes, data, data_size
SELECT shard_id, id_seq, due_at, accepted_at, ordering_key, attributes::text AS attributes, data,
       octet_length(data) AS data_size
FROM scheduled_messages
WHERE shard_id = %(shard_id)s AND id_seq = %(id_seq)s
