-- Takes messages whose time has come out of those that wait, the first ones, up to a number and about so many bytes.
-- What is being cancelled just now is passed by.  One process at a time does this in a shard: else a later message could
-- be appended before an earlier one of its key.  Whoever waited for the lock would look with an old snapshot, so nobody
-- waits: `pg_try`.
-- parameters: shard_id int8, now timestamptz, max_messages int8, max_bytes int8
-- columns: id_seq, due_at, ordering_key, attributes, data, ttl
WITH due AS MATERIALIZED (
    SELECT m.id_seq, m.due_at, m.size
    FROM scheduled_messages AS m
    WHERE m.shard_id = %(shard_id)s
      AND m.due_at <= %(now)s
      AND (SELECT pg_try_advisory_xact_lock(hashtextextended(concat(current_schema(), '/', %(shard_id)s), 4711006)))
    ORDER BY m.due_at, m.id_seq
    LIMIT %(max_messages)s
    FOR UPDATE SKIP LOCKED
),
chosen AS (
    SELECT id_seq
    FROM (SELECT id_seq, sum(size) OVER (ORDER BY due_at, id_seq) - size AS before FROM due) AS counted
    WHERE before < %(max_bytes)s
)
DELETE FROM scheduled_messages AS m
USING chosen AS c
WHERE m.shard_id = %(shard_id)s AND m.id_seq = c.id_seq
RETURNING m.id_seq, m.due_at, m.ordering_key, m.attributes::text AS attributes, m.data, m.ttl
