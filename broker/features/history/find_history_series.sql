-- Returns the ids of series, by their places in the arrays, and creates missing series.  A series that another
-- transaction is creating is left out, so the caller repeats the statement.  Marks the series as used
-- (delete_unused_series.sql).
-- parameters: resources text[], metrics text[], labels text[], now timestamptz
-- columns: place, series_id
WITH given AS MATERIALIZED (
    SELECT g.resource COLLATE "C" AS resource, g.metric, g.label, g.place
    FROM unnest(%(resources)s::text[], %(metrics)s::text[], %(labels)s::text[])
        WITH ORDINALITY AS g (resource, metric, label, place)
), found AS MATERIALIZED (
    SELECT g.place, s.series_id, s.used_at
    FROM given AS g
    JOIN history_series AS s ON s.resource = g.resource AND s.metric = g.metric AND s.label = g.label
), marked AS (
    UPDATE history_series AS s
    SET used_at = %(now)s::timestamptz
    FROM found AS f
    WHERE s.series_id = f.series_id AND f.used_at < %(now)s::timestamptz - interval '1 day'
), added AS (
    INSERT INTO history_series (resource, metric, label, used_at)
    SELECT g.resource, g.metric, g.label, %(now)s::timestamptz
    FROM given AS g
    WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.place = g.place)
    ORDER BY g.place
    ON CONFLICT DO NOTHING
    RETURNING resource, metric, label, series_id
)
SELECT f.place, f.series_id::bigint AS series_id
FROM found AS f
UNION ALL
SELECT g.place, a.series_id::bigint
FROM added AS a
JOIN given AS g USING (resource, metric, label)
