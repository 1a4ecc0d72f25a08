"""What a message says of its time to live, its level and its identity is asked at the call that stages it.

Locks nothing: functions are new, or replaced.
"""

from alembic import op

revision = "0053_since_0001"
down_revision = "0052_since_0001"
branch_labels = None
depends_on = None

# As domain/expiry.py, domain/priority.py and domain/deduplication.py have it: whoever has committed can be told of
# nothing.
CHECK_WISHES = """
CREATE FUNCTION check_staged_wishes(
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
END $$
"""

STAGE_MESSAGE = """
CREATE OR REPLACE FUNCTION stage_message(of_topic text, of_body bytea, of_attributes jsonb, of_key text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    caller text;
    -- First of all: a number is taken only by a transaction that has an id (store/log/find_staged.sql).
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
    caller := application_role('projects/' || split_part(of_topic, '/', 2));
    SELECT t.topic_id, t.delay, t.frozen, t.schema_id, t.message_transforms, t.expiry, t.priorities,
           t.dedup_window IS NOT NULL AS is_deduplicated
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
          AND topic.message_transforms::jsonb @? '$[*] ? (@.disabled == false)' THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = format(
            'Topic has transforms, which SQL cannot run (resource=%s).', split_part(of_topic, '/', 4));
    END IF;
    PERFORM check_staged_message(body, attributes, key);
    IF topic.delay AND attributes ?| array['broker-deliver-at', 'broker-delay'] THEN
        PERFORM check_staged_delay(attributes, moment);
    END IF;
    IF attributes ?| array['broker-ttl', 'broker-priority', 'broker-dedup-id'] THEN
        PERFORM check_staged_wishes(attributes, key, topic.expiry, topic.priorities, topic.is_deduplicated);
    END IF;
    bytes := octet_length(body) + octet_length(attributes::text) + octet_length(key);
    INSERT INTO staged (xid, role, staged_at, wakes, name, topic_id, size, ordering_key, attributes, data)
    VALUES (of_xid, caller, moment, is_first_staged(of_xid), of_topic, topic.topic_id, bytes, nullif(key, ''),
            nullif(attributes, '{}'), body)
    RETURNING n INTO number;
    PERFORM check_staged_bounds(number, bytes);
    RETURN number;
END $$
"""

SIGNATURE = "check_staged_wishes(jsonb, text, boolean, integer, boolean)"


def upgrade() -> None:
    for statement in (CHECK_WISHES, STAGE_MESSAGE):
        op.get_bind().exec_driver_sql(statement.replace("%", "%%"))  # a driver would look for parameters
    op.execute(f"REVOKE EXECUTE ON FUNCTION {SIGNATURE} FROM PUBLIC")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
