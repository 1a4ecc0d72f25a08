-- Writes a message to the outbox in the caller's transaction. Returns the number of its row.
CREATE OR REPLACE FUNCTION write_outbox_message(of_topic text, of_body bytea, of_attributes jsonb, of_key text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    project text;
    caller text;
    -- First of all: a number is taken only by a transaction that has an id (features/outbox/find_outbox_rows.sql).
    of_xid bigint := pg_current_xact_id()::text::bigint;
    moment timestamptz := clock_timestamp();
    body bytea := coalesce(of_body, '');
    attributes jsonb := coalesce(of_attributes, '{}');
    key text := coalesce(of_key, '');
    topic record;
    bytes integer;
    number bigint;
BEGIN
    IF of_topic IS NULL OR of_topic !~ '^projects/[^/]+/topics/[^/]+$' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format(
            'Invalid [topics] name: (name=%s). It must be projects/{project}/topics/{topic}.', left(of_topic, 300));
    END IF;
    project := 'projects/' || split_part(of_topic, '/', 2);
    caller := application_role(project);
    SELECT t.topic_id, t.frozen, t.schema_id, t.message_transforms, t.settings -> 'extensions' AS extensions
    INTO topic
    FROM topics AS t WHERE t.name = of_topic;
    IF topic.topic_id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_object', MESSAGE = format(
            'Topic not found (resource=%s).', left(split_part(of_topic, '/', 4), 300));
    ELSIF topic.frozen IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state', MESSAGE = format(
            'Topic is frozen since %s: %s (resource=%s).', topic.frozen ->> 'since',
            coalesce(nullif(topic.frozen ->> 'reason', ''), 'no reason was given'), split_part(of_topic, '/', 4));
    ELSIF topic.schema_id IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = format(
            'Topic has a schema, which SQL cannot check (resource=%s).', split_part(of_topic, '/', 4));
    ELSIF topic.message_transforms IS NOT NULL
          AND topic.message_transforms::jsonb @? '$[*] ? (!(@.disabled == true))' THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = format(
            'Topic has transforms, which SQL cannot run (resource=%s).', split_part(of_topic, '/', 4));
    END IF;
    PERFORM check_outbox_message(body, attributes, key);
    IF (topic.extensions -> 'delay')::boolean AND attributes ?| array['broker-deliver-at', 'broker-delay'] THEN
        PERFORM check_outbox_delay(attributes, moment);
    END IF;
    IF attributes ?| array['broker-ttl', 'broker-priority', 'broker-dedup-id'] THEN
        -- Priorities are the number of their levels, or an object that has it.
        PERFORM check_outbox_options(
            attributes, key, coalesce((topic.extensions -> 'expiry')::boolean, false),
            coalesce(topic.extensions #>> '{priorities,levels}', topic.extensions ->> 'priorities')::integer,
            coalesce(topic.extensions ? 'deduplication', false));
    END IF;
    bytes := octet_length(body) + octet_length(attributes::text) + octet_length(key);
    INSERT INTO outbox (xid, role, written_at, wakes, name, topic_id, size, ordering_key, attributes, data)
    VALUES (of_xid, caller, moment, is_first_in_outbox(of_xid), of_topic, topic.topic_id, bytes, nullif(key, ''),
            nullif(attributes, '{}'), body)
    RETURNING n INTO number;
    PERFORM check_outbox_bounds(number, bytes, project);
    RETURN number;
END $$;

REVOKE EXECUTE ON FUNCTION write_outbox_message FROM PUBLIC;
