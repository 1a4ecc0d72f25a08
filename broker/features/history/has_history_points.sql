-- Returns whether a writer has written points of a chunk and period.
-- parameters: resolution int8, chunk int8, start_time timestamptz, writer int8, is_gauge bool
-- columns: is_there
SELECT EXISTS (
    SELECT FROM history_points
    WHERE resolution = %(resolution)s AND chunk = %(chunk)s AND start_time = %(start_time)s
      AND writer = %(writer)s AND is_gauge = %(is_gauge)s
) AS is_there
