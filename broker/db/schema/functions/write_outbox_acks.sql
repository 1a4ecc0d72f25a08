-- Writes acks or nacks to the outbox in the caller's transaction. Returns the number of the row. Bytes 2 to 7 of an
-- ack id are the lower six bytes of its subscription's id (model/ack_id.py).
CREATE OR REPLACE FUNCTION write_outbox_acks(of_subscription text, of_ack_ids text[], is_nack boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    project text;
    caller text;
    of_xid bigint := pg_current_xact_id()::text::bigint;
    id bigint;
    wrong text;
    bytes integer;
    number bigint;
BEGIN
    IF of_subscription IS NULL OR of_subscription !~ '^projects/[^/]+/subscriptions/[^/]+$' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format(
            'Invalid [subscriptions] name: (name=%s). It must be projects/{project}/subscriptions/{subscription}.',
            left(of_subscription, 300));
    END IF;
    project := 'projects/' || split_part(of_subscription, '/', 2);
    caller := application_role(project);
    SELECT s.subscription_id INTO id FROM subscriptions AS s WHERE s.name = of_subscription;
    IF id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_object', MESSAGE = format(
            'Subscription does not exist (resource=%s).', left(split_part(of_subscription, '/', 4), 300));
    ELSIF coalesce(cardinality(of_ack_ids), 0) = 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'You have not specified an ack ID in ack_ids.';
    ELSIF cardinality(of_ack_ids) > 10000 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format(
            'ack_ids has %s ids, the maximum is 10000.', cardinality(of_ack_ids));
    END IF;
    SELECT coalesce(left(a.ack_id, 100), 'null') INTO wrong
    FROM unnest(of_ack_ids) AS a (ack_id)
    WHERE CASE
        WHEN a.ack_id IS NULL OR a.ack_id !~ '^[A-Za-z0-9_-]{40}$' THEN true
        ELSE substr(decode(translate(left(a.ack_id, 12), '-_', '+/'), 'base64'), 2, 6)
             <> substr(int8send(id), 3, 6)
    END
    LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format(
            'ack_ids has an id that is none of this subscription''s (ack_id=%s).', wrong);
    END IF;
    bytes := 40 * cardinality(of_ack_ids);
    INSERT INTO outbox (xid, role, written_at, wakes, name, subscription_id, size, ack_ids, nack)
    VALUES (of_xid, caller, clock_timestamp(), is_first_in_outbox(of_xid), of_subscription, id,
            bytes, of_ack_ids, coalesce(is_nack, false))
    RETURNING n INTO number;
    PERFORM check_outbox_bounds(number, bytes, project);
    RETURN number;
END $$;

REVOKE EXECUTE ON FUNCTION write_outbox_acks FROM PUBLIC;
