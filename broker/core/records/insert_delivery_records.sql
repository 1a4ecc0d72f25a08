-- Inserts rows of the record of deliveries: the latest acks, of all shards (on distributed tables: of one).
-- parameters: now timestamptz, shard_ids int8[], subscription_ids int8[], buckets int8[], principals text[], clients text[],
--     answers text[], entries packed bytea[]
INSERT INTO delivery_records (shard_id, subscription_id, bucket, recorded_at, principal, client, answer, entries)
SELECT shard_id, subscription_id, bucket, %(now)s, principal, client, answer, entries
FROM unnest(
    %(shard_ids)s::int8[], %(subscription_ids)s::int8[], %(buckets)s::int8[], %(principals)s::text[],
    %(clients)s::text[], %(answers)s::text[], %(entries)s::bytea[]
) AS r (shard_id, subscription_id, bucket, principal, client, answer, entries)
