-- Raises an error unless time to live, priority and deduplication id are valid by features/expiry/expiry.py,
-- features/priorities/priority.py and features/deduplication/identity.py. Errors must be raised here, because after
-- the commit they cannot be reported to the application.
CREATE OR REPLACE FUNCTION check_outbox_options(
    of_attributes jsonb, of_key text, expires boolean, levels integer, is_deduplicated boolean
) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    ttl text := CASE WHEN expires THEN of_attributes ->> 'broker-ttl' END;
    priority text := CASE WHEN levels IS NOT NULL THEN of_attributes ->> 'broker-priority' END;
    dedup_id text := CASE WHEN is_deduplicated THEN of_attributes ->> 'broker-dedup-id' END;
    wrong text;
BEGIN
    IF dedup_id = '' OR char_length(dedup_id) > 256 THEN
        wrong := format('attributes.broker-dedup-id has %s characters, from 1 to 256 are needed (%s).',
                        char_length(dedup_id), quote_literal(left(dedup_id, 64)));
    ELSIF ttl !~ '^-?[0-9]{1,12}([.][0-9]{1,9})?s$' THEN
        wrong := format('Invalid value at attributes.broker-ttl: %s is not a duration such as 600s.',
                        quote_literal(left(ttl, 100)));
    ELSIF trunc(rtrim(ttl, 's')::numeric, 6) NOT BETWEEN 0.000001 AND 2678400 THEN
        wrong := format('Invalid value at attributes.broker-ttl: %s is not above 0s and at most 2678400s.',
                        quote_literal(ttl));
    ELSIF priority IS NOT NULL AND of_key <> '' THEN
        wrong := format('The message has an ordering key and the attribute broker-priority (%s): messages of a key '
                        'come in their order, and have no priority.', quote_literal(left(priority, 100)));
    ELSIF priority !~ '^[0-9]$' OR priority::integer >= levels THEN
        wrong := format('Invalid value at attributes.broker-priority: %s is not a level of the topic, which are '
                        'the whole numbers from 0 to %s.', quote_literal(left(priority, 100)), levels - 1);
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = wrong;
    END IF;
END $$;

REVOKE EXECUTE ON FUNCTION check_outbox_options FROM PUBLIC;
