-- Scans `max_scanned` retained messages of a shard backwards from a position, newest first.  Returns those that
-- match a filter and an ordering key, and the last one scanned, even if it does not match (`matches` is false): the
-- next page starts after the last row.  If there is no filter path and the key is empty, all messages match.
--
-- * `scanned`: how many messages were scanned up to this one.
-- * `is_last`: whether there is no message after this one.
-- * `data`: only `with_data`, and read only for messages that are returned.  A message that is alone in its batch
--   counts by the size of the row.
--
-- Both conditions on the position are needed: the row comparison provides the order and the early stop, the plain
-- one lets PostgreSQL prune partitions at run time.  The messages of a batch are generated newest first, unlike in
-- the view `messages`, so that nothing has to be sorted.  Stragglers (straggler_messages) are not scanned: they are
-- outstanding already, and can reach no other subscription.
-- parameters: shard_id int8, before_publish_time timestamptz, before_seq int8, retained_since timestamptz,
--     filter_path jsonpath, body_path jsonpath, ordering_key text, max_scanned int8, max_matched int8, max_bytes int8,
--     with_data bool
SELECT seq, publish_time, ordering_key,
       CASE WHEN matches THEN attributes::text END AS attributes,
       CASE WHEN matches AND %(with_data)s THEN body[1] END AS data, id_seq,
       matches, scanned, is_last
FROM (
    SELECT m.*,
           row_number() OVER (ORDER BY m.publish_time DESC, m.last_seq DESC) AS scanned,
           lead(m.seq) OVER (ORDER BY m.publish_time DESC, m.last_seq DESC) IS NULL AS is_last,
           sum(CASE
               WHEN NOT m.matches THEN 0
               WHEN %(with_data)s AND m.count = 1 THEN m.size
               ELSE octet_length(m.attributes::text) + coalesce(octet_length(m.body[1]), 0)
           END) OVER (
               ORDER BY m.publish_time DESC, m.last_seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM (
        SELECT m.seq, l.publish_time, l.last_seq, l.ordering_key, m.attributes, l.count, l.size,
               l.id_seqs[m.ordinal] AS id_seq,
               CASE
                   WHEN NOT %(with_data)s THEN NULL
                   WHEN l.count = 1 THEN l.data  -- may be large, so it is read only if it is returned
                   ELSE ARRAY[l.data[m.ordinal]]
               END AS body,
               (%(filter_path)s::jsonpath IS NULL OR m.attributes @@ %(filter_path)s::jsonpath)
               AND (%(body_path)s::jsonpath IS NULL OR message_matches(
                   m.attributes,
                   CASE WHEN l.count > 1 OR l.size <= 2000000 THEN l.data[m.ordinal] END,  -- as in `messages`
                   l.publish_time,
                   %(body_path)s::jsonpath
               ))
               AND (%(ordering_key)s = '' OR l.ordering_key = %(ordering_key)s) AS matches
        FROM message_batches AS l
        CROSS JOIN LATERAL (
            SELECT l.last_seq - l.count + ordinal AS seq, ordinal, 
                   CASE
                       WHEN l.shared_attributes IS NULL THEN coalesce(l.attributes[ordinal], '{}')
                       ELSE coalesce(l.attributes[ordinal], '{}') || l.shared_attributes
                   END AS attributes
            FROM generate_series(l.count, 1, -1) AS ordinal
        ) AS m
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) < (%(before_publish_time)s, least(%(before_seq)s, 1000000000000000) + 1000)
          AND m.seq < %(before_seq)s
          AND l.publish_time <= %(before_publish_time)s
          AND l.publish_time >= %(retained_since)s
        ORDER BY l.publish_time DESC, l.last_seq DESC
        LIMIT %(max_scanned)s
    ) AS m
) AS counted
WHERE (matches OR is_last) AND (preceding_bytes IS NULL OR preceding_bytes < %(max_bytes)s)
ORDER BY publish_time DESC, seq DESC
LIMIT %(max_matched)s
