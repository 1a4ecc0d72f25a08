-- Resolves the dead letters of a shard that were published before a time and are not resolved: those that a
-- subscription of their topic has acknowledged, and those of the subscriptions in `gone`, which were deleted.
--
-- `filtering`, `filter_paths` and `body_paths`: the subscriptions of the topic that have filters, and the filters.
UPDATE dead_letters AS d
SET resolution = 'acknowledged'
WHERE d.shard_id = %(shard_id)s
  AND d.publish_time < %(before)s
  AND d.resolution IS NULL
  AND (d.publish_time, d.seq) IN (  -- a locked one is being resolved by another transaction
      SELECT l.publish_time, l.seq
      FROM dead_letters AS l
      WHERE l.shard_id = %(shard_id)s AND l.publish_time < %(before)s AND l.resolution IS NULL
      FOR UPDATE SKIP LOCKED
  )
  AND (
      d.subscription_id = ANY (%(gone)s::int8[])
      OR EXISTS (
          SELECT FROM cursors AS c
          WHERE c.shard_id = %(shard_id)s
            AND c.next_seq > d.seq
            AND coalesce(c.first_seq, 0) <= d.seq
            AND NOT EXISTS (
                SELECT FROM delivery_attempts AS a
                WHERE a.shard_id = %(shard_id)s
                  AND a.subscription_id = c.subscription_id
                  AND (
                      a.waiting @> d.seq
                      OR a.seqs @> d.seq AND get_bit(
                          a.open,
                          (
                              SELECT sum(least(upper(r.seqs), d.seq) - lower(r.seqs))::int
                              FROM unnest(a.seqs) AS r (seqs)
                              WHERE lower(r.seqs) <= d.seq
                          )
                      ) = 1
                  )
            )
            AND NOT EXISTS (
                SELECT
                FROM unnest(%(filtering)s::int8[], %(filter_paths)s::text[], %(body_paths)s::text[])
                    AS f (subscription_id, filter_path, body_path)
                WHERE f.subscription_id = c.subscription_id
                  AND NOT EXISTS (
                      SELECT
                      FROM (
                          SELECT m.attributes, m.body
                          FROM messages AS m
                          WHERE m.shard_id = %(shard_id)s AND m.publish_time = d.publish_time
                            AND m.last_seq >= d.seq AND m.last_seq < d.seq + 1000 AND m.seq = d.seq
                          UNION ALL
                          SELECT m.attributes, m.body
                          FROM straggler_messages AS m
                          WHERE m.shard_id = %(shard_id)s AND m.publish_time = d.publish_time
                            AND m.last_seq >= d.seq AND m.last_seq < d.seq + 1000 AND m.seq = d.seq
                      ) AS l
                      WHERE l.attributes @@ f.filter_path::jsonpath
                        AND (f.body_path IS NULL OR message_matches(
                            l.attributes, l.body, d.publish_time, f.body_path::jsonpath
                        ))
                  )
            )
      )
  )
