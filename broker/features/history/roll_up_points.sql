-- Inserts points of periods of `period` seconds, made of the points of a finer resolution between two times, of all
-- writers together.
INSERT INTO history_points (resolution, chunk, start_time, writer, is_gauge, series_ids, amounts)
SELECT %(period)s, s.chunk, s.start_time, 0, s.is_gauge,
       array_agg(s.series_id ORDER BY s.series_id), array_agg(s.amount ORDER BY s.series_id)
FROM (
    SELECT p.chunk,
           date_bin(make_interval(secs => %(period)s), p.start_time, timestamptz 'epoch') AS start_time,
           p.is_gauge,
           u.series_id,
           (CASE WHEN p.is_gauge THEN max(u.amount) ELSE sum(u.amount) END)::bigint AS amount
    FROM history_points AS p
    CROSS JOIN LATERAL unnest(p.series_ids, p.amounts) AS u (series_id, amount)
    WHERE p.resolution = %(resolution)s
      AND p.start_time >= %(since)s::timestamptz AND p.start_time < %(until)s::timestamptz
    GROUP BY 1, 2, 3, 4
) AS s
GROUP BY s.chunk, s.start_time, s.is_gauge
ON CONFLICT DO NOTHING
