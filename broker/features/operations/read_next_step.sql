-- When there is something to do next, of what nobody else may be at; and an operation of a verb that this broker does not
-- know, if there is any, which is left to those that do.
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
