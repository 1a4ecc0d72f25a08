-- Updates the rows of ordering keys after a seek: no message is outstanding, and of the waiting ones only those
-- from `first_seq` on are left.
--
-- If the cursor moves to `until_seq` (null: it does not move), the backlog from there on is in the log.  On an
-- ordered subscription the messages from there on wait in the rows; on an unordered one, which can have rows of
-- keys from the snapshot of an ordered one, they do not.
UPDATE delivery_attempts
SET seqs = '{}', open = '', acked = NULL, out_count = 0, attempt_numbers = '{}', retry_at = NULL,
    waiting = (waiting + unsettled(seqs, open))
        * int8multirange(int8range(%(first_seq)s, CASE WHEN NOT %(ordered)s THEN %(until_seq)s::int8 END))
        + CASE
            WHEN %(ordered)s AND %(until_seq)s::int8 IS NOT NULL THEN int8multirange(int8range(%(until_seq)s, NULL))
            ELSE '{}'
        END
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s AND ordering_key IS NOT NULL
