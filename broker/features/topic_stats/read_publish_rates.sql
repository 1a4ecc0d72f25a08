-- Returns how many messages were published to topics between two times, by the finest points of their history.
-- parameters: topics text[], metric text, resolution int8, chunk_size int8, since timestamptz, until timestamptz
-- columns: topic, messages
SELECT s.resource::text AS topic, sum(p.amounts[array_position(p.series_ids, s.series_id)])::int8 AS messages
FROM history_series AS s
JOIN history_points AS p
  ON p.resolution = %(resolution)s AND p.chunk = s.series_id / %(chunk_size)s
 AND p.start_time >= %(since)s AND p.start_time < %(until)s AND NOT p.is_gauge
WHERE s.resource = ANY (%(topics)s::text[]) AND s.metric = %(metric)s
GROUP BY s.resource
