-- Returns where messages are marked as exhausted, on all nodes: a part of find_dead_letter_work_citus.py.
-- columns: shard_id, subscription_id
SELECT DISTINCT shard_id, subscription_id FROM delivery_attempts WHERE status = 'exhausted'
