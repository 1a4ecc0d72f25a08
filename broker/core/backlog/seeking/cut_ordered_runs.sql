-- Keys' rows after a seek: nothing is out, and of what waits only that from `first_seq` on.  If the cursor moves to
-- `until_seq` (null: it stays) the log is the backlog from there on, so on an unordered subscription (which can have
-- keys' rows from the snapshot of an ordered one) nothing from there on waits in the row.
UPDATE delivery_attempts
SET seqs = '{}', open = '', acked = NULL, out_count = 0, attempt_numbers = '{}', retry_at = NULL,
    waiting = (waiting + unsettled(seqs, open))
        * int8multirange(int8range(%(first_seq)s, CASE WHEN NOT %(ordered)s THEN %(until_seq)s::int8 END))
        + CASE
            WHEN %(ordered)s AND %(until_seq)s::int8 IS NOT NULL THEN int8multirange(int8range(%(until_seq)s, NULL))
            ELSE '{}'
        END
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s AND ordering_key IS NOT NULL
