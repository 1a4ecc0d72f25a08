-- Locks the heads of shards, so that nothing is appended to them until this transaction ends.  They are locked in
-- one order, and after everything else that a transaction locks.
-- parameters: shard_ids int8[]
-- columns: shard_id, head
SELECT shard_id, head
FROM shards
WHERE shard_id = ANY (%(shard_ids)s::int8[])
ORDER BY shard_id
FOR NO KEY UPDATE
