-- Returns the series of some metrics of a resource.
-- parameters: resource text, metrics text[]
-- columns: series_id, metric, label
SELECT series_id::bigint AS series_id, metric, label
FROM history_series
WHERE resource = %(resource)s AND metric = ANY(%(metrics)s)
