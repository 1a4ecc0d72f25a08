-- The publish time of the oldest message that a snapshot holds: of those that were out (by their response, so
-- perhaps a little too old), and of the first one after the cursor.
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
