-- Deletes a scheduled message.  If another transaction is publishing the message, this waits for it and then
-- deletes nothing.  The cancellation is recorded in the table of retracted messages.
-- parameters: shard_id int8, id_seq int8, now timestamptz, by text
-- columns: id_seq
WITH cancelled AS (
    DELETE FROM scheduled_messages WHERE shard_id = %(shard_id)s AND id_seq = %(id_seq)s RETURNING shard_id, id_seq
)
INSERT INTO retracted_messages (shard_id, id_seq, publish_time, retracted_at, retracted_by, head, cancelled)
SELECT shard_id, id_seq, %(now)s, %(now)s, %(by)s, 0, true FROM cancelled
ON CONFLICT DO NOTHING
RETURNING id_seq
