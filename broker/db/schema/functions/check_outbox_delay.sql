-- Raises an error unless the attributes contain a valid delivery time (features/delayed/delay.py).
CREATE OR REPLACE FUNCTION check_outbox_delay(of_attributes jsonb, at_time timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    deliver_at text := of_attributes ->> 'broker-deliver-at';
    delay text := of_attributes ->> 'broker-delay';
    wrong text;
    due_at timestamptz;
BEGIN
    IF deliver_at IS NOT NULL AND delay IS NOT NULL THEN
        wrong := 'attributes has both of broker-deliver-at and broker-delay: only one can be given.';
    ELSIF deliver_at IS NOT NULL THEN
        wrong := format('Invalid value at attributes.broker-deliver-at: %s is not a time such as %s.',
                        quote_literal(left(deliver_at, 100)), '2026-11-21T07:00:00Z');
        IF deliver_at ~ ('^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?'
                         || '([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$') AND left(deliver_at, 4) <> '0000' THEN
            BEGIN
                due_at := upper(deliver_at)::timestamptz;
                wrong := NULL;
            EXCEPTION WHEN data_exception THEN
                NULL;
            END;
        END IF;
    ELSE
        IF delay ~ '^-?[0-9]{1,12}([.][0-9]{1,9})?s$' AND abs(rtrim(delay, 's')::numeric) < 315576000001 THEN
            due_at := at_time + interval '1 second'
                * greatest(least(rtrim(delay, 's')::numeric, 5000000), -5000000)::float8;
        ELSE
            wrong := format('Invalid value at attributes.broker-delay: %s is not a duration such as 600s.',
                            quote_literal(left(delay, 100)));
        END IF;
    END IF;
    IF wrong IS NULL AND due_at > at_time + interval '744 hours' THEN  -- a day of the caller's zone may have 25
        wrong := format('Invalid value at attributes: %s is more than 31 days ahead.',
                        quote_literal(coalesce(deliver_at, delay)));
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = wrong;
    END IF;
END $$;

REVOKE EXECUTE ON FUNCTION check_outbox_delay FROM PUBLIC;
