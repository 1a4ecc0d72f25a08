-- Moves messages that cannot be published from the outbox to the refused messages.
-- parameters: ns int8[], now timestamptz, reason text
-- columns: n
WITH refused AS (DELETE FROM outbox WHERE n = ANY(%(ns)s) RETURNING *)
INSERT INTO refused_messages (n, refused_at, reason, role, written_at, topic, ordering_key, attributes, data)
SELECT n, %(now)s, %(reason)s, role, written_at, name, ordering_key, attributes, data FROM refused
RETURNING n
