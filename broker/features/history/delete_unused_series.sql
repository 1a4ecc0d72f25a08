-- Deletes series without a point.  Each was last used longer ago than any point is kept.
DELETE FROM history_series
WHERE series_id IN (
    SELECT series_id FROM history_series WHERE used_at < %(before)s::timestamptz ORDER BY used_at LIMIT %(limit)s
)
