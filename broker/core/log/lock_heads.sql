-- Nobody appends to these shards until this transaction ends; in the one order, after whatever else is locked.
-- parameters: shard_ids int8[]
-- columns: shard_id, head
SELECT shard_id, head
FROM shards
WHERE shard_id = ANY (%(shard_ids)s::int8[])
ORDER BY shard_id
FOR NO KEY UPDATE
