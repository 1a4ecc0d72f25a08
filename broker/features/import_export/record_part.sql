-- Notes that a part of an import is stored, in the transaction that stores it; no row: it was before.  Waits for another
-- transaction that is about to store the same part.
-- parameters: topic_id int8, import_id text, part int8, digest bytea, message_count int8, now timestamptz
-- columns: part
INSERT INTO imported_parts (topic_id, import_id, part, digest, message_count, imported_at)
VALUES (%(topic_id)s, %(import_id)s, %(part)s, %(digest)s, %(message_count)s, %(now)s)
ON CONFLICT DO NOTHING
RETURNING part
