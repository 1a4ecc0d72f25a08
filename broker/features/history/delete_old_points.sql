-- Deletes the oldest points of a resolution from before a time, up to `limit` rows.
DELETE FROM history_points
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM history_points
    WHERE resolution = %(resolution)s AND start_time < %(before)s::timestamptz
    ORDER BY start_time
    LIMIT %(limit)s
))
