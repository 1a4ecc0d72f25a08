-- parameters: awake_until timestamptz, relayed_to int8
INSERT INTO relaying (awake_until, relayed_to)
VALUES (%(awake_until)s, %(relayed_to)s)
ON CONFLICT (one) DO UPDATE
SET awake_until = greatest(relaying.awake_until, excluded.awake_until),
    relayed_to = greatest(relaying.relayed_to, excluded.relayed_to)
