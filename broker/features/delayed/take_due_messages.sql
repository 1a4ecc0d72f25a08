-- Deletes and returns scheduled messages that are due, the earliest first, up to a number and about `max_bytes`.
--
-- Messages that are being cancelled are skipped.  The transaction has locked the head of the shard (lock_heads.sql)
-- by an earlier statement: otherwise a later message could be appended before an earlier one of its key.
-- parameters: shard_id int8, now timestamptz, max_messages int8, max_bytes int8
-- columns: id_seq, due_at, ordering_key, attributes, data, ttl
WITH due AS MATERIALIZED (
    SELECT m.id_seq, m.due_at, m.size
    FROM scheduled_messages AS m
    WHERE m.shard_id = %(shard_id)s
      AND m.due_at <= %(now)s
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
