-- As find_dead_letter_work, of distributed tables: what is marked, on all nodes.
-- columns: shard_id, subscription_id
SELECT DISTINCT shard_id, subscription_id FROM delivery_attempts WHERE status = 'exhausted'
