-- Appends one batch, for distributed tables; append_messages.sql appends several
-- (core/log/append_messages_citus.py).
-- parameters: shard_id int8, publish_time timestamptz, last_seq int8, count int8, size int8,
--     ordering_key packed text, attributes packed jsonb[], data packed bytea[], shared_attributes packed jsonb,
--     expires_at packed timestamptz
INSERT INTO message_batches (shard_id, publish_time, last_seq, count, size, ordering_key, attributes, data,
                             shared_attributes, expires_at)
VALUES (%(shard_id)s, %(publish_time)s, %(last_seq)s, %(count)s, %(size)s, %(ordering_key)s, %(attributes)s,
        %(data)s, %(shared_attributes)s, %(expires_at)s)
