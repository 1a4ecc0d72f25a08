-- Returns the lag of subscriptions that have a backlog or dead letters.  A subscription at rest is not sampled again,
-- so its last sample counts while passes over all subscriptions end.  Returns nothing if gauges of the period have been
-- recorded already.
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
