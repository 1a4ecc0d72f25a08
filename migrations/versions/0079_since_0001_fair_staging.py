"""What one project stages does not count against another, and nobody stages in the name of a maintenance command.

Locks: the one row of `relaying`, while two columns with constant defaults are added to its table.
"""

from alembic import op

revision = "0079_since_0001"
down_revision = "0078_since_0001"
branch_labels = None
depends_on = None

# `behind`: projects of which something is left up to `relayed_to`, but nothing up to `behind_to`.
COLUMNS = (
    "ALTER TABLE relaying ADD COLUMN behind text[] NOT NULL DEFAULT '{}'",
    "ALTER TABLE relaying ADD COLUMN behind_to bigint NOT NULL DEFAULT 0",
)

# The first row of a transaction fires a deferred trigger, which PostgreSQL refuses within maintenance commands
# (ANALYZE, CREATE INDEX, REFRESH MATERIALIZED VIEW, autovacuum).  These run functions of a table's owner in a
# session of somebody else, whose grants would count.  So whether a row is the first is read from the table: a
# setting could be anybody's.  An ordered range is always looked up in the index; for an equality the planner may
# read the whole table.
IS_FIRST = """
CREATE OR REPLACE FUNCTION is_first_staged(of_xid bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT true FROM staged WHERE xid >= of_xid AND xid <= of_xid ORDER BY xid LIMIT 1) IS NULL;
END $$
"""

# The bound is of what has been staged since a broker last had all of the project that it saw.  What large rows take
# is in the size of the table, which costs a look at its files.
WITHIN_BOUNDS = """
CREATE FUNCTION check_staged_bounds(up_to bigint, added integer, of_project text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF up_to - coalesce((
           SELECT CASE WHEN of_project = ANY(behind) THEN least(behind_to, relayed_to) ELSE relayed_to END
           FROM relaying
       ), 0) > 250000
       OR added > 65536 AND pg_table_size('staged') > 16000000000
    THEN
        RAISE EXCEPTION USING ERRCODE = 'configuration_limit_exceeded',
            MESSAGE = 'Too much is staged that no broker has taken.',
            HINT = 'A broker must run on these tables. One transaction stages 250,000 messages at most.';
    END IF;
END $$
"""

STAGE_MESSAGE = """
CREATE OR REPLACE FUNCTION stage_message(of_topic text, of_body bytea, of_attributes jsonb, of_key text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    project text;
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
    project := 'projects/' || split_part(of_topic, '/', 2);
    caller := application_role(project);
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
    PERFORM check_staged_bounds(number, bytes, project);
    RETURN number;
END $$
"""

# An ack id is base64url of a version, the subscription's id in six bytes, and more (domain/ack_id.py).
STAGE_ACKS = """
CREATE OR REPLACE FUNCTION stage_acks(of_subscription text, of_ack_ids text[], is_nack boolean) RETURNS bigint
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
    INSERT INTO staged (xid, role, staged_at, wakes, name, subscription_id, size, ack_ids, nack)
    VALUES (of_xid, caller, clock_timestamp(), is_first_staged(of_xid), of_subscription, id,
            bytes, of_ack_ids, coalesce(is_nack, false))
    RETURNING n INTO number;
    PERFORM check_staged_bounds(number, bytes, project);
    RETURN number;
END $$
"""


def upgrade() -> None:
    for statement in (*COLUMNS, IS_FIRST, WITHIN_BOUNDS, STAGE_MESSAGE, STAGE_ACKS):
        op.get_bind().exec_driver_sql(statement.replace("%", "%%"))  # a driver would look for parameters
    op.execute("REVOKE EXECUTE ON FUNCTION check_staged_bounds(bigint, integer, text) FROM PUBLIC")
    op.execute("DROP FUNCTION check_staged_bounds(bigint, integer)")


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
