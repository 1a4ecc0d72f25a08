-- Counts what two filters match of the newest `max_scanned` retained messages of a shard.
-- parameters: shard_id int8, retained_since timestamptz, max_scanned int8, before_path jsonpath,
--     before_body_path jsonpath, after_path jsonpath, after_body_path jsonpath
-- columns: scanned, before, after, both_match
SELECT count(*) AS scanned, count(*) FILTER (WHERE m.before) AS before, count(*) FILTER (WHERE m.after) AS after,
       count(*) FILTER (WHERE m.before AND m.after) AS both_match
FROM (
    SELECT (%(before_path)s::jsonpath IS NULL OR l.attributes @@ %(before_path)s::jsonpath)
           AND (%(before_body_path)s::jsonpath IS NULL OR message_matches(
               l.attributes, l.body, l.publish_time, %(before_body_path)s::jsonpath
           )) AS before,
           (%(after_path)s::jsonpath IS NULL OR l.attributes @@ %(after_path)s::jsonpath)
           AND (%(after_body_path)s::jsonpath IS NULL OR message_matches(
               l.attributes, l.body, l.publish_time, %(after_body_path)s::jsonpath
           )) AS after
    FROM messages AS l
    WHERE l.shard_id = %(shard_id)s AND l.publish_time >= %(retained_since)s
    ORDER BY l.publish_time DESC, l.last_seq DESC
    LIMIT %(max_scanned)s
) AS m
