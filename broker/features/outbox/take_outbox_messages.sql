-- Takes messages of a topic out of the outbox.  Fewer than there were asked for: another process has taken some, or
-- is at work for the same topic, and has its row locked; what two of them append side by side could be stored in the
-- wrong order.  Nobody waits for the row, because whoever did would go on with a snapshot from before.
-- parameters: ns int8[], topic_id int8
-- columns: n
DELETE FROM outbox
WHERE n = ANY(%(ns)s)
  AND (SELECT true FROM topics WHERE topic_id = %(topic_id)s FOR NO KEY UPDATE SKIP LOCKED)
RETURNING n
