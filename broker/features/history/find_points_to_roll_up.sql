-- Returns when the first points of a resolution begin that no points of the next one contain yet.
SELECT min(p.start_time)
FROM history_points AS p
WHERE p.resolution = %(resolution)s
  AND p.start_time >= coalesce(
      (SELECT max(start_time) FROM history_points WHERE resolution = %(period)s)
      + make_interval(secs => %(period)s),
      '-infinity'
  )
