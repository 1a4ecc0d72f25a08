-- Counts the messages between a cursor and a message that match the filter, among the first `max_scanned`.
-- Messages after that message are not read: there may be ten million of them.
-- parameters: shard_id int8, subscription_id int8, seq int8, publish_time timestamptz, retained_since timestamptz,
--     filter_path jsonpath, body_path jsonpath, now timestamptz, max_scanned int8
-- columns: scanned, matching
SELECT count(*) AS scanned, count(*) FILTER (WHERE m.matches) AS matching
FROM (
    SELECT (%(filter_path)s::jsonpath IS NULL OR l.attributes @@ %(filter_path)s::jsonpath)
           AND (%(body_path)s::jsonpath IS NULL OR message_matches(
               l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath
           ))
           AND (l.expires_at IS NULL OR l.expires_at > %(now)s) AS matches
    FROM cursors AS c
    CROSS JOIN LATERAL (
        SELECT l.attributes, l.body, l.publish_time, l.expires_at FROM messages AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (c.next_publish_time, c.next_seq)
          AND l.publish_time >= greatest(c.next_publish_time, %(retained_since)s)
          AND l.publish_time <= %(publish_time)s
          AND l.seq >= c.next_seq AND l.seq < %(seq)s
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(max_scanned)s
    ) AS l
    WHERE c.shard_id = %(shard_id)s AND c.subscription_id = %(subscription_id)s
) AS m
