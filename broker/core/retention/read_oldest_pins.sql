-- Returns the oldest publish times that are still needed: `oldest_attempt` by delivery attempts without an ordering
-- key, `oldest` by everything else.  Rows of ordering keys belong to the latter, because the messages that wait for
-- a key are only in the log.
--
-- It is one statement and so one snapshot: a claim moves messages from after a cursor into an attempt in one
-- commit.  A cursor that has passed the head of its shard needs nothing, however old its position is.  Nothing
-- needs messages that its subscription does not retain, unless they were redriven from a dead-letter topic.
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
