-- Raises an error unless a message is within the limits of model/publish_limits.py. It checks exactly these, so
-- that a message is never refused later because of its size.
CREATE OR REPLACE FUNCTION check_outbox_message(body bytea, of_attributes jsonb, of_key text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    total int8 := octet_length(body) + octet_length(of_key) + 1000;
    wrong text;
    entries int8;
    one record;
BEGIN
    IF jsonb_typeof(of_attributes) <> 'object' THEN
        wrong := format('attributes must be a JSON object, and is of type %s.', jsonb_typeof(of_attributes));
    ELSIF octet_length(body) = 0 AND of_attributes = '{}' THEN
        wrong := 'The message is empty: it needs data or at least one attribute.';
    ELSIF octet_length(of_key) > 1024 THEN
        wrong := format('ordering_key is too long: %s bytes, the maximum is 1024.', octet_length(of_key));
    ELSIF of_attributes <> '{}' THEN
        entries := (SELECT count(*) FROM jsonb_object_keys(of_attributes));
        IF entries > 100 THEN
            wrong := format('attributes has %s entries, the maximum is 100.', entries);
        ELSE
            FOR one IN SELECT a.key, a.value, a.value #>> '{}' AS told FROM jsonb_each(of_attributes) AS a LOOP
                total := total + octet_length(one.key) + octet_length(coalesce(one.told, '')) + 20;
                wrong := CASE
                    WHEN jsonb_typeof(one.value) <> 'string' THEN
                        format('attributes[%s] must be a string, and is of type %s.',
                               quote_literal(left(one.key, 64)), jsonb_typeof(one.value))
                    WHEN one.key = '' THEN 'attributes has an empty key.'
                    WHEN octet_length(one.key) > 256 THEN
                        format('attributes has a key over 256 bytes (%s...).', quote_literal(left(one.key, 64)))
                    WHEN octet_length(one.told) > 1024 THEN
                        format('attributes[%s] is too long: %s bytes, the maximum is 1024.',
                               quote_literal(one.key), octet_length(one.told))
                    WHEN lower(left(one.key, 4)) = 'goog' AND one.key NOT IN (
                        'googclient_traceparent', 'googclient_tracestate', 'googclient_OpenTelemetrySpanContext'
                    ) THEN
                        format('attributes has the key %s: keys may not start with ''goog''.',
                               quote_literal(one.key))
                END;
                EXIT WHEN wrong IS NOT NULL;
            END LOOP;
        END IF;
    END IF;
    IF wrong IS NULL AND total > 10000000 THEN
        wrong := format('The message is too large: %s bytes, the maximum is 10000000.', total);
    END IF;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = wrong;
    END IF;
END $$;

REVOKE EXECUTE ON FUNCTION check_outbox_message FROM PUBLIC;
