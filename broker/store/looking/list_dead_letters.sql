-- What one subscription has given up in one shard, by where it was there, from behind a dead letter on.
-- parameters: shard_id int8, subscription_id int8, after_seq int8, after_letter_shard int8, after_letter_seq int8,
--     max_letters int8
-- columns: letter_shard, letter_seq, publish_time, seq, source_publish_time, delivery_attempts, reason
SELECT shard_id AS letter_shard, seq AS letter_seq, publish_time, source_seq AS seq, source_publish_time,
       delivery_attempts, reason
FROM dead_letters
WHERE source_shard_id = %(shard_id)s
  AND source_seq >= %(after_seq)s
  AND (source_seq, shard_id, seq) > (%(after_seq)s, %(after_letter_shard)s, %(after_letter_seq)s)
  AND subscription_id = %(subscription_id)s
ORDER BY source_seq, shard_id, seq
LIMIT %(max_letters)s
