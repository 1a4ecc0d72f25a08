-- Deletes attempts as delete_finished_attempts.sql does, without reading the catalog.  The caller has read it:
-- `gone` are the subscriptions that were deleted, `sinces` says since when each subscription in `ids` retains its
-- messages.
WITH deleted AS (
    DELETE FROM delivery_attempts AS d
    WHERE d.subscription_id = ANY (%(gone)s::int8[])
       OR d.ordering_key IS NULL
          AND (
              bit_count(d.open) = 0 AND d.next_delivery_at < %(now)s
              OR d.redriven IS NULL
              AND d.last_publish_time
                  < (%(sinces)s::timestamptz[])[array_position(%(ids)s::int8[], d.subscription_id)]
          )
    RETURNING d.shard_id, d.subscription_id, d.attempt_number, d.seqs, d.open
)
SELECT shard_id, subscription_id, attempt_number, seqs::text, open::text FROM deleted
