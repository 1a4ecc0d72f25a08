-- Waits for whoever is appending the message just now, and finds none then.
-- parameters: shard_id int8, id_seq int8, due_at timestamptz
-- columns: due_at
UPDATE scheduled_messages SET due_at = %(due_at)s
WHERE shard_id = %(shard_id)s AND id_seq = %(id_seq)s
RETURNING due_at
