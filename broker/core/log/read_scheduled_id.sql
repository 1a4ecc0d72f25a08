-- parameters: shard_id int8, id_seq int8
-- columns: seq
SELECT seq FROM scheduled_ids WHERE shard_id = %(shard_id)s AND id_seq = %(id_seq)s
