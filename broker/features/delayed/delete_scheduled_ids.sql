-- Deletes some of the ids that were marked by mark_scheduled_ids.sql so long ago that no record refers to their
-- messages any more.
DELETE FROM scheduled_ids AS d
USING (
    SELECT i.shard_id, i.id_seq
    FROM scheduled_ids AS i
    WHERE i.gone_at <= %(before)s
    ORDER BY i.gone_at
    LIMIT %(limit)s
) AS gone
WHERE d.shard_id = gone.shard_id AND d.id_seq = gone.id_seq
