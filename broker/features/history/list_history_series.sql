-- Returns the series of a metric of a resource.
-- parameters: resource text, metric text
-- columns: series_id, label
SELECT series_id::bigint AS series_id, label
FROM history_series
WHERE resource = %(resource)s AND metric = %(metric)s
