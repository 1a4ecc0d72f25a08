-- Counts the scheduled messages and bytes of a topic.  Reads at most `most` messages.
SELECT count(*), coalesce(sum(m.size), 0)::int8
FROM (
    SELECT size FROM scheduled_messages WHERE shard_id = ANY (%(shard_ids)s::int8[]) LIMIT %(most)s
) AS m
