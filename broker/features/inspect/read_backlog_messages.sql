-- Returns messages by their sequences that match a filter, in the log or among the stragglers: one index range for
-- each run of sequences, as in read_due_messages.sql.  The data is cut after `preview_bytes`.  `has_text`: the data
-- contains `contains` (empty: always true); otherwise the data is left out.  A message beyond the byte budget comes
-- without attributes and data (`fits` is false); bytes that are read and cut off count a tenth.
-- parameters: shard_id int8, first_publish_time timestamptz, last_publish_time timestamptz, seqs text,
--     filter_path jsonpath, body_path jsonpath, contains bytea, preview_bytes int8, max_bytes int8
-- columns: seq, publish_time, ordering_key, attributes, data, data_size, id_seq, expires_at, fits, has_text
SELECT seq, publish_time, ordering_key, CASE WHEN fits THEN attributes::text END AS attributes,
       CASE
           WHEN NOT has_text THEN NULL
           WHEN %(preview_bytes)s = 0 THEN ''
           ELSE substr(data_array[1], 1, %(preview_bytes)s::int4)
       END AS data,
       data_size, id_seq, expires_at, fits, has_text
FROM (
    SELECT counted.*,
           fits AND (%(contains)s::bytea = '' OR position(%(contains)s::bytea IN data_array[1]) > 0) AS has_text
    FROM (
        SELECT m.*,
               coalesce(sum(m.size - m.data_size + least(m.data_size, %(preview_bytes)s) + CASE
                   WHEN %(preview_bytes)s = 0 AND %(contains)s::bytea = '' THEN 0
                   ELSE greatest(m.data_size - %(preview_bytes)s, 0) / 10
               END) OVER (
                   ORDER BY m.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
               ), 0) < %(max_bytes)s AS fits
        FROM (
            SELECT l.seq, l.publish_time, l.ordering_key, l.attributes, l.data_array, l.data_size, l.size, l.id_seq,
                   l.expires_at
            FROM messages AS l
            WHERE l.shard_id = %(shard_id)s
              AND (l.publish_time, l.last_seq) >= (%(first_publish_time)s, lower(%(seqs)s::int8multirange))
              AND (l.publish_time, l.last_seq) < (%(last_publish_time)s, upper(%(seqs)s::int8multirange) + 1000)
              AND l.publish_time >= %(first_publish_time)s
              AND l.publish_time <= %(last_publish_time)s
              AND l.seq <@ %(seqs)s::int8multirange
              AND (%(filter_path)s::jsonpath IS NULL OR l.attributes @@ %(filter_path)s::jsonpath)
              AND (%(body_path)s::jsonpath IS NULL OR message_matches(
                  l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath
              ))
            UNION ALL
            SELECT l.seq, l.publish_time, l.ordering_key, l.attributes, l.data_array, l.data_size, l.size, l.id_seq,
                   l.expires_at
            FROM straggler_messages AS l
            WHERE l.shard_id = %(shard_id)s
              AND (l.publish_time, l.last_seq) >= (%(first_publish_time)s, lower(%(seqs)s::int8multirange))
              AND (l.publish_time, l.last_seq) < (%(last_publish_time)s, upper(%(seqs)s::int8multirange) + 1000)
              AND l.seq <@ %(seqs)s::int8multirange
              AND (%(filter_path)s::jsonpath IS NULL OR l.attributes @@ %(filter_path)s::jsonpath)
              AND (%(body_path)s::jsonpath IS NULL OR message_matches(
                  l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath
              ))
        ) AS m
    ) AS counted
) AS searched
ORDER BY seq
