-- Returns whether a message matches a filter that reads bodies. `path` is evaluated on an array of the attributes
-- and, if the body can be parsed, its JSON. A body with fields can only begin with an object, an array or white
-- space; for any other first byte no subtransaction is started. The handler catches only the errors of jsonb and of
-- the text encoding: a lack of memory must not be taken for a body without fields.
CREATE OR REPLACE FUNCTION body_matches(attributes jsonb, body bytea, path jsonpath) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    message jsonb;
BEGIN
    IF octet_length(body) BETWEEN 1 AND 262144 AND get_byte(body, 0) IN (9, 10, 13, 32, 91, 123) THEN
        BEGIN
            message := jsonb_build_array(attributes, convert_from(body, 'UTF8')::jsonb);
        EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
            message := NULL;
        END;
    END IF;
    RETURN coalesce(message, jsonb_build_array(attributes)) @@ path;
END
$$;
