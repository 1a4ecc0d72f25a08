-- Returns the sequences of an ordering key's row that are not settled: those from the first open bit on, because an
-- ack takes effect only once all earlier messages of the key are acknowledged. The function has no subquery of its
-- own, so PostgreSQL inlines it: a seek or a snapshot calls it for the row of every key, and most of these rows are
-- open from their first message on. `CASE` has no operand because Citus deparses that form wrongly.
CREATE OR REPLACE FUNCTION unsettled(seqs int8multirange, open bit varying) RETURNS int8multirange
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
    CASE
        WHEN position(B'1' IN open) = 0 THEN '{}'::int8multirange
        WHEN position(B'1' IN open) = 1 THEN seqs
        ELSE seqs * int8multirange(int8range(nth_sequence(seqs, position(B'1' IN open)), NULL))
    END;
