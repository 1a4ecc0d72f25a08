-- Removes messages from message_batches, or from straggler_batches (statements.hot_of).  The remaining messages of
-- a batch become new batches before and after the removed ones; their sequences have gaps, as a topic's transforms
-- leave them too.  The statement runs under the locks of all cursors of the shard and of its head, so no claim has
-- looked up a batch that it has yet to read (docs/decisions/0048).  Returns the sequences of the removed messages.
-- parameters: shard_id int8, publish_times timestamptz[], seqs int8[]
-- columns: seq
WITH asked AS MATERIALIZED (
    SELECT w.publish_time, range_agg(int8range(w.seq, w.seq + 1)) AS seqs, min(w.seq) AS first, max(w.seq) AS last
    FROM unnest(%(publish_times)s::timestamptz[], %(seqs)s::int8[]) AS w (publish_time, seq)
    GROUP BY w.publish_time
),
found AS MATERIALIZED (
    SELECT b.publish_time, b.last_seq, a.seqs, int8range(b.last_seq - b.count, b.last_seq, '(]') AS held
    FROM asked AS a
    CROSS JOIN LATERAL (
        SELECT l.publish_time, l.last_seq, l.count
        FROM message_batches AS l
        WHERE l.shard_id = %(shard_id)s AND l.publish_time = a.publish_time
          AND l.last_seq >= a.first AND l.last_seq < a.last + 1000
          AND int8range(l.last_seq - l.count, l.last_seq, '(]') && a.seqs
        OFFSET 0  -- by the key, for each publish time
    ) AS b
),
gone AS (
    DELETE FROM message_batches AS b
    USING found AS f
    WHERE b.shard_id = %(shard_id)s AND b.publish_time = f.publish_time AND b.last_seq = f.last_seq
    RETURNING b.*, f.seqs, f.held
),
kept AS (
    INSERT INTO message_batches (shard_id, publish_time, last_seq, count, size, ordering_key, attributes, data,
                                 shared_attributes, id_seqs, expires_at)
    SELECT p.shard_id, p.publish_time, p.last, p.last - p.first + 1, p.bytes, p.ordering_key,
           p.attributes[p.low:p.high], p.data[p.low:p.high], p.shared_attributes, p.id_seqs[p.low:p.high],
           p.expires_at
    FROM (
        SELECT g.*, lower(r) AS first, upper(r) - 1 AS last,
               (lower(r) - lower(g.held) + 1)::int4 AS low, (upper(r) - lower(g.held))::int4 AS high, z.bytes
        FROM gone AS g
        CROSS JOIN LATERAL unnest(int8multirange(g.held) - g.seqs) AS r
        CROSS JOIN LATERAL (
            SELECT sum(octet_length(g.data[n]) + coalesce(octet_length(g.attributes[n]::text), 0)) AS bytes
            FROM generate_series((lower(r) - lower(g.held) + 1)::int4, (upper(r) - lower(g.held))::int4) AS n
        ) AS z
    ) AS p
)
SELECT w.seq
FROM gone AS g
JOIN unnest(%(publish_times)s::timestamptz[], %(seqs)s::int8[]) AS w (publish_time, seq)
  ON w.publish_time = g.publish_time AND g.held @> w.seq
