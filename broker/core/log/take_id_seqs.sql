-- Gives out the next `count` numbers of a shard for messages that are to come later.  The row stays locked until commit,
-- as for take_sequences: what was answered before a freeze, or the topic's end, is all that there is.
-- The next statement sees by `flush` that they are its own.
-- parameters: shard_id int8, count int8, flush int8
UPDATE shards
SET last_id_seq = last_id_seq + %(count)s,
    last_flush = %(flush)s
WHERE shard_id = %(shard_id)s AND open AND frozen_at IS NULL
RETURNING last_id_seq
