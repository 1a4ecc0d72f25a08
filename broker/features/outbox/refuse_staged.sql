-- Puts messages that cannot be published aside.
-- parameters: ns int8[], now timestamptz, reason text
-- columns: n
WITH refused AS (DELETE FROM staged WHERE n = ANY(%(ns)s) RETURNING *)
INSERT INTO refused_messages (n, refused_at, reason, role, staged_at, topic, ordering_key, attributes, data)
SELECT n, %(now)s, %(reason)s, role, staged_at, name, ordering_key, attributes, data FROM refused
RETURNING n
