-- Returns a stored part of an import.
-- parameters: topic_id int8, import_id text, part int8
-- columns: digest, message_count
SELECT digest, message_count FROM imported_parts
WHERE topic_id = %(topic_id)s AND import_id = %(import_id)s AND part = %(part)s
