-- Returns a message by its sequence.  Of its data, `max_bytes` after the first `offset` are returned.
--
-- Publish times increase with sequences, so the batch is found by bisecting the interval of time that can contain
-- it: about thirty index lookups, whatever the size of the log.  A message that has outlived its partition is found
-- among the stragglers.
-- parameters: shard_id int8, seq int8, offset int8, max_bytes int8
-- columns: publish_time, ordering_key, attributes, data, id_seq, expires_at, data_size
WITH RECURSIVE search (low, high, steps) AS (
    SELECT oldest.publish_time, s.last_publish_time, 0
    FROM shards AS s
    CROSS JOIN LATERAL (
        SELECT publish_time FROM message_batches
        WHERE shard_id = %(shard_id)s
        ORDER BY publish_time, last_seq
        LIMIT 1
    ) AS oldest
    WHERE s.shard_id = %(shard_id)s
    UNION ALL
    SELECT CASE WHEN p.first_seq <= %(seq)s THEN p.publish_time ELSE r.low END,
           CASE WHEN p.first_seq <= %(seq)s THEN r.high ELSE r.low + (r.high - r.low) / 2 END,
           r.steps + 1
    FROM search AS r
    CROSS JOIN LATERAL (
        SELECT publish_time, last_seq - count + 1 AS first_seq FROM message_batches
        WHERE shard_id = %(shard_id)s AND publish_time >= r.low + (r.high - r.low) / 2
        ORDER BY publish_time, last_seq
        LIMIT 1
    ) AS p
    WHERE r.high - r.low > interval '1 millisecond' AND r.steps < 64
)
SELECT b.publish_time, b.ordering_key,
       (coalesce(b.attributes[%(seq)s - (b.last_seq - b.count)], '{}') || coalesce(b.shared_attributes, '{}'))::text
           AS attributes,
       substr(b.data[%(seq)s - (b.last_seq - b.count)], %(offset)s::int4 + 1, %(max_bytes)s::int4) AS data,
       b.id_seqs[%(seq)s - (b.last_seq - b.count)] AS id_seq,
       b.expires_at,
       octet_length(b.data[%(seq)s - (b.last_seq - b.count)]) AS data_size
FROM (
    (
        SELECT l.*
        FROM (SELECT low, high FROM search ORDER BY steps DESC LIMIT 1) AS r
        CROSS JOIN LATERAL (
            SELECT publish_time, last_seq, count, ordering_key, attributes, shared_attributes, data, id_seqs, expires_at
            FROM message_batches
            WHERE shard_id = %(shard_id)s AND publish_time >= r.low AND publish_time <= r.high AND last_seq >= %(seq)s
            ORDER BY publish_time, last_seq
            LIMIT 1
        ) AS l
    )
    UNION ALL
    (
        SELECT publish_time, last_seq, count, ordering_key, attributes, shared_attributes, data, id_seqs, expires_at
        FROM straggler_batches
        WHERE shard_id = %(shard_id)s AND last_seq >= %(seq)s AND last_seq - count < %(seq)s
        LIMIT 1
    )
) AS b
WHERE b.last_seq - b.count < %(seq)s
LIMIT 1
