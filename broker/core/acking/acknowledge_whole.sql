-- acknowledge, of all messages of an attempt, where shards lie on nodes: planned in no time.  It is about the attempt's
-- first part alone.  An ack or a new deadline that came before is waited for, and its row is looked at again; what
-- this leaves, because it has moved to another part, is asked for by acknowledge.  Citus returns nothing that depends on
-- settings, such as the text of a multirange.
-- parameters: shard_id int8, subscription_id int8, attempt_id int8, count int8
DELETE FROM delivery_attempts
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s AND attempt_id = %(attempt_id)s AND part = 0
  AND ordering_key IS NULL AND length(open) = %(count)s AND bit_count(open) > 0
RETURNING subscription_id, attempt_id, open::text, seqs, attempt_number
