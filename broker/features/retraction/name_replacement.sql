-- Stores the id of the message that was published in the place of a retracted message.
-- parameters: shard_id int8, id_seq int8, replacement_shard_id int8, replacement_id_seq int8
UPDATE retracted_messages
SET replacement_shard_id = %(replacement_shard_id)s, replacement_id_seq = %(replacement_id_seq)s
WHERE shard_id = %(shard_id)s AND id_seq = %(id_seq)s
