-- Returns the publish time of the oldest message in a snapshot: of the outstanding messages (by the first message
-- of their response, so it may be slightly too old), and of the first message after each cursor.
SELECT least(
    (SELECT min(first_publish_time) FROM snapshot_outstanding WHERE snapshot_id = %(snapshot_id)s),
    (
        SELECT min(m.publish_time)
        FROM snapshot_positions AS p
        CROSS JOIN LATERAL (
            SELECT l.publish_time
            FROM message_batches AS l
            WHERE l.shard_id = p.shard_id
              AND (l.publish_time, l.last_seq) >= (p.next_publish_time, p.next_seq)
              AND l.publish_time >= p.next_publish_time
              AND l.publish_time >= %(retained_since)s
            ORDER BY l.publish_time, l.last_seq
            LIMIT 1
        ) AS m
        WHERE p.snapshot_id = %(snapshot_id)s
    )
)
