-- Gives out the next `count` numbers of a shard for scheduled messages.
--
-- The row stays locked until the commit, as with take_sequences.sql, so that every message that was accepted before
-- the topic was frozen or deleted is visible to the transaction that did so.  The next statement recognizes by
-- `flush` that the numbers are its own.
-- parameters: shard_id int8, count int8, flush int8
UPDATE shards
SET last_id_seq = last_id_seq + %(count)s,
    last_flush = %(flush)s
WHERE shard_id = %(shard_id)s AND open AND frozen_at IS NULL
RETURNING last_id_seq
