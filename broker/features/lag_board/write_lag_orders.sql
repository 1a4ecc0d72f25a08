-- Writes the orders of the projects between two names from their samples, if the pass has changed any of the
-- samples.
INSERT INTO lag_orders (project, order_by, began_at, subscription_ids)
SELECT p.project, o.order_by, %(began_at)s, o.subscription_ids
FROM (
    SELECT 'projects/' || split_part(s.name, '/', 2) AS project,
           array_agg(s.subscription_id ORDER BY l.oldest_unacked_at NULLS LAST, l.undelivered_messages DESC, s.name)
               AS oldest,
           array_agg(s.subscription_id ORDER BY l.undelivered_messages DESC, s.name) AS undelivered,
           array_agg(s.subscription_id ORDER BY l.undelivered_bytes DESC, s.name) AS bytes,
           array_agg(s.subscription_id ORDER BY l.outstanding_messages DESC, s.name) AS outstanding,
           array_agg(s.subscription_id ORDER BY l.blocked_messages DESC, s.name) AS blocked,
           array_agg(s.subscription_id ORDER BY l.dead_letters DESC, s.name) AS dead_letters,
           array_agg(s.subscription_id ORDER BY coalesce(l.incoming_rate, 0) DESC, s.name) AS incoming,
           array_agg(s.subscription_id ORDER BY coalesce(l.outgoing_rate, 0) DESC, s.name) AS outgoing
    FROM subscriptions AS s
    JOIN lag_samples AS l ON l.subscription_id = s.subscription_id
    WHERE s.name > %(after)s AND (%(before)s::text IS NULL OR s.name < %(before)s)
      -- Skips the sort if the pass has changed none of them.
      AND EXISTS (
          SELECT
          FROM subscriptions AS t
          JOIN lag_samples AS m ON m.subscription_id = t.subscription_id
          WHERE t.name > %(after)s AND (%(before)s::text IS NULL OR t.name < %(before)s)
            AND m.sampled_at >= %(began_at)s
      )
    GROUP BY 1
    HAVING bool_or(l.sampled_at >= %(began_at)s)
) AS p
CROSS JOIN LATERAL (VALUES
    ('oldestUndeliveredMessageAge', p.oldest),
    ('undeliveredMessages', p.undelivered),
    ('undeliveredBytesEstimate', p.bytes),
    ('outstandingMessages', p.outstanding),
    ('blockedMessages', p.blocked),
    ('deadLetters', p.dead_letters),
    ('incomingMessagesPerSecond', p.incoming),
    ('outgoingMessagesPerSecond', p.outgoing)
) AS o (order_by, subscription_ids)
ON CONFLICT DO NOTHING
