-- Extends a subscription after a seek to messages that were published before it was created, if they are in its
-- backlog now.
UPDATE cursors AS c
SET first_seq = least(c.first_seq, c.next_seq, (
    SELECT min(lower(a.seqs))
    FROM delivery_attempts AS a
    WHERE a.shard_id = %(shard_id)s AND a.subscription_id = %(subscription_id)s
))
WHERE c.shard_id = %(shard_id)s AND c.subscription_id = %(subscription_id)s AND c.first_seq IS NOT NULL
