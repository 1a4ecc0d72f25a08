-- Records how far the outbox was relayed.  `behind` are projects that may have rows left beyond `behind_to`; all
-- other projects have none left up to `relayed_to`.
-- parameters: awake_until timestamptz, relayed_to int8, behind text[], behind_to int8
INSERT INTO outbox_progress (awake_until, relayed_to, behind, behind_to)
VALUES (%(awake_until)s, %(relayed_to)s, %(behind)s, %(behind_to)s)
ON CONFLICT (one) DO UPDATE
SET awake_until = greatest(outbox_progress.awake_until, excluded.awake_until),
    relayed_to = greatest(outbox_progress.relayed_to, excluded.relayed_to),
    behind = excluded.behind,
    behind_to = greatest(outbox_progress.behind_to, excluded.behind_to)
