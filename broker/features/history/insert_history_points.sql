-- Inserts the points of a period, one for each series, as a row for each chunk.  `series_ids` ascend.  Points that
-- this writer has already written of the same period stay.
-- parameters: resolution int8, start_time timestamptz, writer int8, is_gauge bool, series_ids int8[], amounts int8[],
--     chunk_size int8
INSERT INTO history_points (resolution, chunk, start_time, writer, is_gauge, series_ids, amounts)
SELECT %(resolution)s, p.series_id / %(chunk_size)s, %(start_time)s, %(writer)s, %(is_gauge)s,
       array_agg(p.series_id::integer), array_agg(p.amount)
FROM unnest(%(series_ids)s, %(amounts)s) AS p (series_id, amount)
GROUP BY p.series_id / %(chunk_size)s
ON CONFLICT DO NOTHING
