-- Deletes attempts that can deliver nothing any more:
--
-- * Their subscription was deleted or detached.
-- * All their messages are older than the subscription, or its topic, retains (unless they were redriven from a
--   dead-letter topic).
-- * All their messages are acknowledged, and the time is over for which they were kept to recognize repeated acks
--   (exactly-once delivery).
--
-- Returns the messages that were open: they have expired, unless their subscription does not exist any more.  Rows
-- of ordering keys are deleted only with their subscription: they do not contain the messages that wait for the
-- key, and claims delete them otherwise.
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
