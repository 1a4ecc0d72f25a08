-- Records that a part of an import is stored, in the transaction that stores it.  There is no row if it was stored
-- before.  If another transaction is storing the same part, this waits for it.
-- parameters: topic_id int8, import_id text, part int8, digest bytea, message_count int8, now timestamptz
-- columns: part
INSERT INTO imported_parts (topic_id, import_id, part, digest, message_count, imported_at)
VALUES (%(topic_id)s, %(import_id)s, %(part)s, %(digest)s, %(message_count)s, %(now)s)
ON CONFLICT DO NOTHING
RETURNING part
