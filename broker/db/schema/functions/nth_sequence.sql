-- Returns the n-th sequence of a multirange, counted from 1.
CREATE OR REPLACE FUNCTION nth_sequence(seqs int8multirange, n integer) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (
    SELECT s
    FROM unnest(seqs) AS r CROSS JOIN LATERAL generate_series(lower(r), upper(r) - 1) AS s
    ORDER BY s
    OFFSET n - 1
    LIMIT 1
);
