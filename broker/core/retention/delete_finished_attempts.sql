-- Attempts that can deliver nothing any more: their subscription is gone or detached, or all their messages are
-- older than it, or its topic, retains (unless they came back from a dead-letter topic); or they are acked and kept only to tell repeated acks (exactly-once).
-- What was open of them is returned too: it has expired, unless nobody is left to ask.
-- Of keys' rows only those without a subscription: what waits of a key is not in its row, and a claim sees to it.
DELETE FROM delivery_attempts AS d
WHERE (d.shard_id, d.subscription_id, d.attempt_id, d.part) IN (
    SELECT a.shard_id, a.subscription_id, a.attempt_id, a.part
    FROM delivery_attempts AS a
    LEFT JOIN subscriptions AS s USING (subscription_id)
    LEFT JOIN topics AS t USING (topic_id)
    WHERE s.subscription_id IS NULL
       OR s.detached
       OR (a.ordering_key IS NULL AND bit_count(a.open) = 0 AND a.next_delivery_at < %(now)s)
       OR (
           a.ordering_key IS NULL
           AND a.redriven IS NULL
           AND a.last_publish_time < %(now)s::timestamptz - greatest(s.message_retention, t.message_retention)
       )
    LIMIT %(limit)s
)
RETURNING d.shard_id, d.subscription_id, d.attempt_number, d.seqs::text, d.open::text
