-- Returns the points of series in periods of `period` seconds: for each of the `resolutions`, the points between
-- its two times.  The amounts of counters are summed over writers and times; of the values of gauges the highest is
-- taken.
-- parameters: series_ids int8[], period int8, resolutions int8[], since timestamptz[], until timestamptz[],
--     chunk_size int8
-- columns: series_id, start_time, amount
SELECT s.series_id,
       date_bin(make_interval(secs => %(period)s), p.start_time, timestamptz 'epoch') AS start_time,
       (CASE WHEN p.is_gauge THEN max(a.amount) ELSE sum(a.amount) END)::bigint AS amount
FROM unnest(%(series_ids)s) AS s (series_id)
CROSS JOIN unnest(%(resolutions)s, %(since)s, %(until)s) AS r (resolution, since, until)
JOIN history_points AS p
  ON p.resolution = r.resolution AND p.chunk = s.series_id / %(chunk_size)s
 AND p.start_time >= r.since AND p.start_time < r.until
CROSS JOIN LATERAL (SELECT p.amounts[array_position(p.series_ids, s.series_id::integer)]) AS a (amount)
WHERE a.amount IS NOT NULL
GROUP BY 1, 2, p.is_gauge
ORDER BY 1, 2 DESC
