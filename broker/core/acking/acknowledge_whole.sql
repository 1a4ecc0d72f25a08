-- Acknowledges all messages of an attempt.  It replaces acknowledge.sql on distributed tables, because Citus plans
-- it much faster.
--
-- Only the first part of the attempt is deleted.  If another ack or a new deadline holds the row, this statement
-- waits and checks the conditions again.  The caller runs acknowledge.sql for messages that this leaves because
-- they have moved to another part.  `seqs` is not cast to text, because Citus does not return expressions that
-- depend on settings, such as the text of a multirange.
-- parameters: shard_id int8, subscription_id int8, attempt_id int8, count int8
DELETE FROM delivery_attempts
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s AND attempt_id = %(attempt_id)s AND part = 0
  AND ordering_key IS NULL AND length(open) = %(count)s AND bit_count(open) > 0
RETURNING subscription_id, attempt_id, open::text, seqs, attempt_number
