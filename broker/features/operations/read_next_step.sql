-- Returns when the next step of any operation of these verbs is due, and an operation of a verb that this broker
-- does not know, if there is one; brokers that know the verb run it.
-- parameters: verbs text[]
-- columns: next_step_at, name, verb
(
    SELECT next_step_at, NULL AS name, NULL AS verb
    FROM operations
    WHERE ended_at IS NULL AND verb = ANY (%(verbs)s::text[])
    ORDER BY next_step_at
    LIMIT 1
)
UNION ALL
(
    SELECT NULL, name, verb
    FROM operations
    WHERE ended_at IS NULL AND verb <> ALL (%(verbs)s::text[])
    ORDER BY next_step_at
    LIMIT 1
)
