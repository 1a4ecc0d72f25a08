-- Changes the time at which a scheduled message is published.  If another transaction is publishing the message,
-- this waits for it and then returns no row.
-- parameters: shard_id int8, id_seq int8, due_at timestamptz
-- columns: due_at
UPDATE scheduled_messages SET due_at = %(due_at)s
WHERE shard_id = %(shard_id)s AND id_seq = %(id_seq)s
RETURNING due_at
