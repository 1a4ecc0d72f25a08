-- Deletes messages of a topic from the outbox.
--
-- If fewer rows are returned than were given, another process has taken some, or is publishing to the same topic
-- and has locked its row: messages that two processes append concurrently could be stored in the wrong order.  The
-- statement does not wait for the lock, because after the wait it would continue with an earlier snapshot.
-- parameters: ns int8[], topic_id int8
-- columns: n
DELETE FROM outbox
WHERE n = ANY(%(ns)s)
  AND (SELECT true FROM topics WHERE topic_id = %(topic_id)s FOR NO KEY UPDATE SKIP LOCKED)
RETURNING n
