-- Gives out the next `count` numbers of a shard for messages that are to come later.  The row stays locked until commit,
-- as for take_sequences: what was answered before a freeze, or the topic's end, is all that there is.
-- parameters: shard_id int8, count int8
UPDATE shards
SET last_id_seq = last_id_seq + %(count)s
WHERE shard_id = %(shard_id)s AND open AND frozen_at IS NULL
RETURNING last_id_seq
