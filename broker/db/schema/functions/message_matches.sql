-- Returns whether a message matches filters that also read publish times. `path` is evaluated on an array of the
-- attributes, the body's JSON (parsed as in body_matches; an empty array if it cannot be parsed), and the publish
-- time in seconds since 1970.
CREATE OR REPLACE FUNCTION message_matches(attributes jsonb, body bytea, publish_time timestamptz, path jsonpath)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    document jsonb := '[]';
BEGIN
    IF octet_length(body) BETWEEN 1 AND 262144 AND get_byte(body, 0) IN (9, 10, 13, 32, 91, 123) THEN
        BEGIN
            document := convert_from(body, 'UTF8')::jsonb;
        EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
            document := '[]';
        END;
    END IF;
    RETURN jsonb_build_array(attributes, document, extract(epoch FROM publish_time)) @@ path;
END
$$;
