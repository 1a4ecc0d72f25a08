"""What applications publish and acknowledge in their own transactions, until a broker has seen their commit.

Locks nothing: tables and functions are new.
"""

from alembic import op

revision = "0037_since_0001"
down_revision = "0036_since_0001"
branch_labels = None
depends_on = None

TABLES = (
    """
    CREATE TABLE staged (
        n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        xid bigint NOT NULL,
        role text NOT NULL,
        staged_at timestamptz NOT NULL,
        wakes boolean NOT NULL,
        name text NOT NULL,
        topic_id bigint,
        subscription_id bigint,
        size integer NOT NULL,
        ordering_key text,
        attributes jsonb,
        data bytea,
        ack_ids text[],
        nack boolean NOT NULL DEFAULT false
    )
    """,
    "CREATE INDEX staged_xid_idx ON staged (xid, n)",
    """
    CREATE TABLE refused_messages (
        n bigint PRIMARY KEY,
        refused_at timestamptz NOT NULL,
        reason text NOT NULL,
        role text NOT NULL,
        staged_at timestamptz NOT NULL,
        topic text NOT NULL,
        ordering_key text,
        attributes jsonb,
        data bytea NOT NULL
    )
    """,
    """
    CREATE TABLE relaying (
        one boolean PRIMARY KEY DEFAULT true,
        awake_until timestamptz NOT NULL,
        relayed_to bigint NOT NULL,
        CONSTRAINT relaying_one_check CHECK (one)
    )
    """,
    "INSERT INTO relaying VALUES (true, '-infinity', 0)",
    """
    CREATE TABLE application_grants (
        role text NOT NULL,
        project text COLLATE "C" NOT NULL,
        granted_at timestamptz NOT NULL,
        PRIMARY KEY (role, project)
    )
    """,
)

# Who calls: the role that was SET, or the one that logged in; a function that is SECURITY DEFINER has the rights of
# its owner and is told of both.  Its rights are those of the roles that it is a member of, as with tables.
CALLER = """
CREATE FUNCTION application_role(of_project text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    caller text := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
BEGIN
    IF EXISTS (SELECT FROM application_grants AS g WHERE g.role = caller AND g.project = of_project)
       OR EXISTS (
           SELECT
           FROM application_grants AS g
           JOIN pg_catalog.pg_roles AS r ON r.rolname = g.role
           WHERE g.project = of_project AND pg_has_role(caller, r.oid, 'USAGE')
       )
    THEN
        RETURN caller;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
        MESSAGE = format('The role %s may not publish or acknowledge in %s.', caller, left(of_project, 300)),
        HINT = format('`broker sql grant %s --project %s` lets it.', caller, left(substr(of_project, 10), 300));
END $$
"""

# As domain/publish_limits.py has it, and no more than that: what passes here is never refused later for its size.
CHECK = """
CREATE FUNCTION check_staged_message(body bytea, of_attributes jsonb, of_key text) RETURNS void
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
END $$
"""

# As domain/delay.py has it.
CHECK_DELAY = """
CREATE FUNCTION check_staged_delay(of_attributes jsonb, at_time timestamptz) RETURNS void LANGUAGE plpgsql AS $$
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
END $$
"""

# The bound is of what has been staged since a broker last had all that it saw.  Those that large messages make are
# in the size of the table, which costs a look at its files.
WITHIN_BOUNDS = """
CREATE FUNCTION check_staged_bounds(up_to bigint, added integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF up_to - coalesce((SELECT relayed_to FROM relaying), 0) > 250000
       OR added > 65536 AND pg_table_size('staged') > 16000000000
    THEN
        RAISE EXCEPTION USING ERRCODE = 'configuration_limit_exceeded',
            MESSAGE = 'Too much is staged that no broker has taken.',
            HINT = 'A broker must run on these tables. One transaction stages 250,000 messages at most.';
    END IF;
END $$
"""

# Whether this row is the first of its transaction in this installation: at the commit it wakes brokers.
IS_FIRST = """
CREATE FUNCTION is_first_staged(of_xid bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    variable text := 'broker.staged_' || 'staged'::regclass::oid;
BEGIN
    IF current_setting(variable, true) = of_xid::text THEN
        RETURN false;
    END IF;
    PERFORM set_config(variable, of_xid::text, true);
    RETURN true;
END $$
"""

STAGE_MESSAGE = """
CREATE FUNCTION stage_message(of_topic text, of_body bytea, of_attributes jsonb, of_key text) RETURNS bigint
LANGUAGE plpgsql AS $$
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
    SELECT t.topic_id, t.delay, t.frozen, t.schema_id, t.message_transforms INTO topic
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
    bytes := octet_length(body) + octet_length(attributes::text) + octet_length(key);
    INSERT INTO staged (xid, role, staged_at, wakes, name, topic_id, size, ordering_key, attributes, data)
    VALUES (of_xid, caller, moment, is_first_staged(of_xid), of_topic, topic.topic_id, bytes, nullif(key, ''),
            nullif(attributes, '{}'), body)
    RETURNING n INTO number;
    PERFORM check_staged_bounds(number, bytes);
    RETURN number;
END $$
"""

# An ack id is base64url of a version, the subscription's id in six bytes, and more (domain/ack_id.py).
STAGE_ACKS = """
CREATE FUNCTION stage_acks(of_subscription text, of_ack_ids text[], is_nack boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    caller text;
    of_xid bigint := pg_current_xact_id()::text::bigint;
    id bigint;
    wrong text;
    number bigint;
BEGIN
    IF of_subscription IS NULL OR of_subscription !~ '^projects/[^/]+/subscriptions/[^/]+$' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format(
            'Invalid [subscriptions] name: (name=%s). It must be projects/{project}/subscriptions/{subscription}.',
            left(of_subscription, 300));
    END IF;
    caller := application_role('projects/' || split_part(of_subscription, '/', 2));
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
    INSERT INTO staged (xid, role, staged_at, wakes, name, subscription_id, size, ack_ids, nack)
    VALUES (of_xid, caller, clock_timestamp(), is_first_staged(of_xid), of_subscription, id,
            40 * cardinality(of_ack_ids), of_ack_ids, coalesce(is_nack, false))
    RETURNING n INTO number;
    PERFORM check_staged_bounds(number, 0);
    RETURN number;
END $$
"""

# At the commit, once a transaction.  NOTIFY takes a lock that all that commit one share until they are on disk, so
# a broker that looks by itself is not told.  The role that commits has no rights here: those of the owner are used.
WAKE_RELAY = """
CREATE FUNCTION wake_relay() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_awake boolean;
BEGIN
    EXECUTE format('SELECT awake_until > clock_timestamp() FROM %I.relaying', TG_TABLE_SCHEMA) INTO is_awake;
    IF is_awake IS NOT TRUE THEN
        PERFORM pg_notify(
            'broker_staged' || CASE TG_TABLE_SCHEMA WHEN 'public' THEN '' ELSE '.' || TG_TABLE_SCHEMA END, '');
    END IF;
    RETURN NULL;
END $$
"""

TRIGGER = """
CREATE CONSTRAINT TRIGGER staged_wakes AFTER INSERT ON staged DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (new.wakes) EXECUTE FUNCTION wake_relay()
"""

FUNCTIONS = (CALLER, CHECK, CHECK_DELAY, WITHIN_BOUNDS, IS_FIRST, STAGE_MESSAGE, STAGE_ACKS, WAKE_RELAY)
NAMES = (
    "application_role(text)",
    "check_staged_message(bytea, jsonb, text)",
    "check_staged_delay(jsonb, timestamptz)",
    "check_staged_bounds(bigint, integer)",
    "is_first_staged(bigint)",
    "stage_message(text, bytea, jsonb, text)",
    "stage_acks(text, text[], boolean)",
    "wake_relay()",
)


def upgrade() -> None:
    for statement in (*TABLES, *FUNCTIONS, TRIGGER):
        op.get_bind().exec_driver_sql(statement.replace("%", "%%"))  # a driver would look for parameters
    for name in NAMES:
        op.get_bind().exec_driver_sql(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
