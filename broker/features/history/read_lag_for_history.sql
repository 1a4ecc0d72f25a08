-- The gauges of the subscriptions that have any message or dead letter, by the samples of their lag.  The samples of a
-- subscription at rest are not written again: they count as long as passes over all subscriptions end.  Nothing, if
-- gauges of the period are recorded already.
SELECT s.name,
       l.undelivered_messages,
       l.outstanding_messages,
       coalesce(greatest(extract(epoch FROM l.sampled_at - l.oldest_unacked_at)::bigint, 0), 0),
       l.undelivered_bytes,
       l.dead_letters
FROM lag_samples AS l
JOIN subscriptions AS s USING (subscription_id)
WHERE (
      l.sampled_at >= %(since)s::timestamptz
      OR EXISTS (SELECT FROM lag_passes AS p WHERE p.sampled_at >= %(since)s::timestamptz)
  )
  AND (l.undelivered_messages > 0 OR l.outstanding_messages > 0 OR l.dead_letters > 0)
  AND NOT EXISTS (
      SELECT FROM history_points
      WHERE resolution = %(resolution)s AND start_time = %(start_time)s::timestamptz AND is_gauge
  )
