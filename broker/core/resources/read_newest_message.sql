-- When the newest message of some shards came: was published, or accepted for later.  Null: none has come.
SELECT greatest(
    (
        SELECT max(last_publish_time) FROM shards WHERE shard_id = ANY (%(shard_ids)s::int8[]) AND head > 0
    ),
    (
        SELECT max(accepted_at) FROM scheduled_messages WHERE shard_id = ANY (%(shard_ids)s::int8[])
    )
)
