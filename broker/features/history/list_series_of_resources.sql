-- Returns the series of a metric of all topics, or all subscriptions, of a project, whose names begin with `prefix`:
-- at most `most`, with this value of the label ('': any).
-- parameters: prefix text, metric text, label text, most int8
-- columns: series_id, resource, label
SELECT series_id::bigint AS series_id, resource, label
FROM history_series
WHERE resource > %(prefix)s AND resource < rtrim(%(prefix)s, '/') || '0'
  AND metric = %(metric)s AND (%(label)s = '' OR label = %(label)s)
ORDER BY resource
LIMIT %(most)s
