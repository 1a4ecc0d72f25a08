-- Records in the journal the messages that cursors skip unread because their retention has passed: up to the first
-- message that is retained.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], next_publish_times timestamptz[],
--     next_seqs int8[], sinces timestamptz[]
WITH passed AS MATERIALIZED (
    SELECT p.subscription_id, int8multirange(int8range(p.next_seq, b.first_seq)) AS seqs
    FROM unnest(
        %(subscription_ids)s::int8[], %(next_publish_times)s::timestamptz[], %(next_seqs)s::int8[],
        %(sinces)s::timestamptz[]
    ) AS p (subscription_id, next_publish_time, next_seq, since)
    CROSS JOIN LATERAL (
        SELECT l.last_seq - l.count + 1 AS first_seq
        FROM message_batches AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (p.next_publish_time, p.next_seq)
          AND l.publish_time >= p.since
        ORDER BY l.publish_time, l.last_seq
        LIMIT 1
    ) AS b
    WHERE b.first_seq > p.next_seq
)
INSERT INTO delivery_journal (
    shard_id, subscription_id, bucket, time, event, attempt, seqs, principal, client, answer
)
SELECT %(shard_id)s, subscription_id, -1, %(now)s, 'EXPIRED', 0, seqs, '', '', '' FROM passed
