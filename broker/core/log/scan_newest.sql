-- Scans `max_scanned` retained messages of a shard backwards from a position, newest first.  Returns those that
-- match a filter and an ordering key and whose data contains `contains`, and the last one scanned, even if it does
-- not match (`matches` is false): the next page starts after the last row.  If there is no filter path, and the key
-- and `contains` are empty, all messages match.
--
-- * `scanned`: how many messages were scanned up to this one.
-- * `is_last`: whether there is no message after this one.
-- * `data`: truncated to `preview_bytes`.
--
-- A message counts with what is returned of it, and with a tenth of the data that is read and not returned.  A scan
-- that reads bodies ends after ten times `max_bytes` of them.  Large bodies, in rows of their own, count by the
-- size of the row and are read at the end.
--
-- Both conditions on the position are needed: the row comparison provides the order and the early stop, the plain
-- one lets PostgreSQL prune partitions at run time.  The messages of a batch are generated newest first, unlike in
-- the view `messages`, so that nothing has to be sorted.  Stragglers (straggler_messages) are not scanned: they are
-- outstanding already, and can reach no other subscription.
-- parameters: shard_id int8, before_publish_time timestamptz, before_seq int8, retained_since timestamptz,
--     filter_path jsonpath, body_path jsonpath, ordering_key text, contains bytea, max_scanned int8, max_matched int8,
--     max_bytes int8, preview_bytes int8
-- columns: seq, publish_time, ordering_key, attributes, data, id_seq, data_size, matches, scanned, is_last
SELECT seq, publish_time, ordering_key,
       CASE WHEN matches THEN attributes::text END AS attributes,
       CASE
           WHEN NOT matches THEN NULL
           WHEN %(preview_bytes)s = 0 THEN ''
           ELSE substr(body[1], 1, %(preview_bytes)s::int4)
       END AS data,
       id_seq, data_size, matches, scanned, is_last
FROM (
    SELECT m.*,
           sum(CASE
               WHEN NOT m.matches THEN 0
               ELSE octet_length(m.attributes::text) + least(m.data_size, %(preview_bytes)s) + CASE
                   WHEN %(preview_bytes)s = 0 THEN 0
                   ELSE greatest(m.data_size - %(preview_bytes)s, 0) / 10
               END
           END) OVER (
               ORDER BY m.publish_time DESC, m.last_seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM (
        SELECT m.*,
               CASE m.count
                   WHEN 1 THEN m.size - coalesce(octet_length(m.own_attributes::text), 0)
                   ELSE octet_length(m.body[1])
               END AS data_size,
               (%(filter_path)s::jsonpath IS NULL OR m.attributes @@ %(filter_path)s::jsonpath)
               AND (%(ordering_key)s = '' OR m.ordering_key = %(ordering_key)s)
               AND (%(body_path)s::jsonpath IS NULL OR message_matches(
                   m.attributes,
                   CASE WHEN m.count > 1 OR m.size <= 2000000 THEN m.body[1] END,  -- as in `messages`
                   m.publish_time,
                   %(body_path)s::jsonpath
               ))
               AND (%(contains)s::bytea = '' OR position(%(contains)s::bytea IN m.body[1]) > 0) AS matches,
               coalesce(m.preceding_read, 0) + m.read_bytes >= 10 * %(max_bytes)s AS is_cut
        FROM (
            SELECT m.*,
                   row_number() OVER (ORDER BY m.publish_time DESC, m.last_seq DESC) AS scanned,
                   lead(m.seq) OVER (ORDER BY m.publish_time DESC, m.last_seq DESC) IS NULL AS is_last,
                   sum(m.read_bytes) OVER (
                       ORDER BY m.publish_time DESC, m.last_seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                   ) AS preceding_read
            FROM (
                SELECT m.seq, l.publish_time, l.last_seq, l.ordering_key, m.attributes,
                       l.attributes[m.ordinal] AS own_attributes, l.count, l.size, l.id_seqs[m.ordinal] AS id_seq,
                       CASE
                           WHEN l.count = 1 THEN l.data  -- may be large, so it is read only if it is returned
                           ELSE l.data[m.ordinal:m.ordinal]
                       END AS body,
                       CASE
                           WHEN %(contains)s::bytea = '' AND %(body_path)s::jsonpath IS NULL THEN 0
                           ELSE l.size / l.count
                       END AS read_bytes
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
                  AND (l.publish_time, l.last_seq)
                      < (%(before_publish_time)s, least(%(before_seq)s, 1000000000000000) + 1000)
                  AND m.seq < %(before_seq)s
                  AND l.publish_time <= %(before_publish_time)s
                  AND l.publish_time >= %(retained_since)s
                ORDER BY l.publish_time DESC, l.last_seq DESC
                LIMIT %(max_scanned)s
            ) AS m
        ) AS m
        WHERE m.preceding_read IS NULL OR m.preceding_read < 10 * %(max_bytes)s
    ) AS m
) AS counted
WHERE (matches OR is_last OR is_cut) AND (preceding_bytes IS NULL OR preceding_bytes < %(max_bytes)s)
ORDER BY publish_time DESC, seq DESC
LIMIT %(max_matched)s
