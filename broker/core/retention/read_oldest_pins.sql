-- The oldest publish times that anything may still want: of everything but delivery attempts, and of those.  A key's
-- row counts with everything else: what waits of the key is in the log only.
-- One statement, one snapshot: a claim moves a message from a cursor's future into an attempt in one commit.
-- A cursor that has passed its shard's head wants nothing, however old its time; none wants what its
-- subscription does not retain, unless it came back from a dead-letter topic.
SELECT
    least(
        (
            SELECT min(greatest(c.next_publish_time, %(now)s::timestamptz - s.message_retention))
            FROM cursors AS c
            JOIN subscriptions AS s USING (subscription_id)
            JOIN shards AS h USING (shard_id)
            WHERE c.next_seq <= h.head
        ),
        (SELECT min(%(now)s::timestamptz - message_retention) FROM topics),
        (
            SELECT min(%(now)s::timestamptz - message_retention)
            FROM subscriptions
            WHERE retain_acked_messages AND NOT detached
        ),
        (
            SELECT min(p.next_publish_time)
            FROM snapshot_positions AS p
            JOIN snapshots AS n USING (snapshot_id)
            WHERE n.expire_time > %(now)s
        ),
        (
            SELECT min(o.first_publish_time)
            FROM snapshot_outstanding AS o
            JOIN snapshots AS n USING (snapshot_id)
            WHERE n.expire_time > %(now)s
        ),
        (
            SELECT min(
                CASE WHEN d.redriven THEN d.first_publish_time
                     ELSE greatest(d.first_publish_time, %(now)s::timestamptz - s.message_retention)
                END
            )
            FROM delivery_attempts AS d
            JOIN subscriptions AS s USING (subscription_id)
            WHERE d.ordering_key IS NOT NULL AND NOT s.detached
        )
    ) AS oldest,
    (
        SELECT min(
                CASE WHEN d.redriven THEN d.first_publish_time
                     ELSE greatest(d.first_publish_time, %(now)s::timestamptz - s.message_retention)
                END
            )
        FROM delivery_attempts AS d
        JOIN subscriptions AS s USING (subscription_id)
        WHERE d.ordering_key IS NULL AND NOT s.detached
    ) AS oldest_attempt
