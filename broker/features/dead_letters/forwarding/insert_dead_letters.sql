-- Records the dead letters that this transaction has just appended to a shard: its last `count` sequences, in their
-- order.  Their attributes have the same facts, but any publisher can set attributes.
-- parameters: shard_id int8, count int8, source_shard_id int8, source_topic text, subscription_id int8,
--     subscription text, source_seqs int8[], source_publish_times timestamptz[], delivery_attempts int8[],
--     reasons text[], responses text[], fingerprints text[]
INSERT INTO dead_letters (
    shard_id, publish_time, seq, source_shard_id, source_seq, source_publish_time, source_topic,
    subscription_id, subscription, delivery_attempts, reason, response, fingerprint
)
SELECT s.shard_id, s.last_publish_time, s.head - %(count)s + l.ordinal, %(source_shard_id)s, l.seq, l.publish_time,
       %(source_topic)s, %(subscription_id)s, %(subscription)s, l.attempts, l.reason, l.response, l.fingerprint
FROM shards AS s,
     unnest(
         %(source_seqs)s::int8[], %(source_publish_times)s::timestamptz[], %(delivery_attempts)s::int8[],
         %(reasons)s::text[], %(responses)s::text[], %(fingerprints)s::text[]
     ) WITH ORDINALITY AS l (seq, publish_time, attempts, reason, response, fingerprint, ordinal)
WHERE s.shard_id = %(shard_id)s AND s.open
