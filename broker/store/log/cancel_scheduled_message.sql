-- Waits for whoever is appending the message just now, and finds none then.
-- parameters: shard_id int8, id_seq int8
-- columns: due_at
DELETE FROM scheduled_messages WHERE shard_id = %(shard_id)s AND id_seq = %(id_seq)s RETURNING due_at
