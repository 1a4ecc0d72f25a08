-- Returns when the newest points of each resolution begin.  Resolutions without points have no row.
-- parameters: resolutions int8[]
-- columns: resolution, start_time
SELECT r.resolution, p.start_time
FROM unnest(%(resolutions)s) AS r (resolution)
CROSS JOIN LATERAL (
    SELECT start_time FROM history_points WHERE resolution = r.resolution ORDER BY start_time DESC LIMIT 1
) AS p
