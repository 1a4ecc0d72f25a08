"""The schema of the first release.

What each table and column is for is said in broker/db/schema/tables.py; here are the comments on how they are
stored.  The tables are sent to PostgreSQL in one round trip, since a first start waits for it.

Locks: creates only; touches nothing that exists.
"""

import secrets

from alembic import op
from sqlalchemy import text

from broker.db.schema.revision_steps import SQL_FUNCTIONS, create_functions, run_script

revision = "0001_baseline"
down_revision = None
branch_labels = None
depends_on = None

RESOURCES = """
    CREATE TABLE topics (
        topic_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        message_retention interval,
        settings jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL,
        schema_id bigint,
        schema_encoding text,
        first_revision_id text,
        last_revision_id text,
        message_transforms text,
        frozen jsonb,
        key_shards integer,
        exact_durations jsonb
    );

    CREATE TABLE subscriptions (
        subscription_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        topic text NOT NULL,
        topic_id bigint NOT NULL,
        retain_acked_messages boolean NOT NULL,
        message_retention interval NOT NULL,
        settings jsonb NOT NULL DEFAULT '{}',
        enable_message_ordering boolean NOT NULL,
        expiration_ttl interval,
        filter text NOT NULL DEFAULT '',
        filter_path jsonpath,
        dead_letter_topic text,
        max_delivery_attempts integer,
        detached boolean NOT NULL,
        created_at timestamptz NOT NULL,
        last_active_at timestamptz NOT NULL,
        idle_watched interval NOT NULL DEFAULT '00:00:00',
        idle_watched_at timestamptz,
        message_transforms text,
        body_path jsonpath,
        endpoint_set_at timestamptz,
        earlier_filters jsonb,
        filter_changed_at timestamptz,
        newest_filter_path jsonpath,
        newest_body_path jsonpath,
        exact_durations jsonb
    );
    CREATE INDEX ix_subscriptions_topic_id ON subscriptions (topic_id);
    CREATE INDEX subscriptions_push_idx ON subscriptions (subscription_id)
        WHERE settings -> 'pushConfig' ? 'pushEndpoint' AND NOT detached;
    CREATE INDEX subscriptions_dead_letter_idx ON subscriptions (subscription_id)
        WHERE dead_letter_topic IS NOT NULL;
    CREATE INDEX subscriptions_secrets_idx ON subscriptions (subscription_id)
        WHERE settings #> '{extensions,push}' ? 'webhookSecrets';

    CREATE TABLE snapshots (
        snapshot_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        topic text NOT NULL,
        topic_id bigint NOT NULL,
        labels jsonb NOT NULL DEFAULT '{}',
        expire_time timestamptz NOT NULL,
        created_at timestamptz NOT NULL
    );
    CREATE INDEX ix_snapshots_topic_id ON snapshots (topic_id);

    CREATE TABLE payload_schemas (
        schema_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        type text NOT NULL,
        compatibility text
    );
    CREATE TABLE payload_schema_revisions (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        schema_id bigint NOT NULL,
        revision_id text NOT NULL,
        definition text NOT NULL,
        compiled bytea,
        root_message text,
        created_at timestamptz NOT NULL,
        UNIQUE (schema_id, revision_id)
    );

    CREATE TABLE schedules (
        name text COLLATE "C" PRIMARY KEY,
        definition jsonb NOT NULL,
        anchor timestamptz NOT NULL,
        next_at timestamptz,
        paused boolean NOT NULL,
        ticks bigint NOT NULL,
        last_outcome text,
        created_by text NOT NULL,
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL,
        paused_at timestamptz,
        paused_by text
    );
    CREATE INDEX schedules_next_idx ON schedules (next_at) WHERE next_at IS NOT NULL;
    CREATE INDEX schedules_topic_idx ON schedules ((definition ->> 'topic'));
    CREATE INDEX schedules_project_idx ON schedules (split_part(name, '/schedules/', 1), next_at)
        WHERE next_at IS NOT NULL;
    CREATE TABLE schedule_ticks (
        schedule text COLLATE "C" NOT NULL,
        number bigint NOT NULL,
        planned_at timestamptz,
        ran_at timestamptz NOT NULL,
        outcome text NOT NULL,
        reason text NOT NULL,
        message_id text NOT NULL,
        PRIMARY KEY (schedule, number)
    );

    CREATE TABLE operations (
        name text COLLATE "C" PRIMARY KEY,
        project text NOT NULL,
        verb text NOT NULL,
        target text NOT NULL,
        started_by text NOT NULL,
        request jsonb NOT NULL,
        progress jsonb NOT NULL,
        counts jsonb NOT NULL,
        done bigint NOT NULL,
        total bigint NOT NULL,
        is_estimate boolean NOT NULL,
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL,
        next_step_at timestamptz NOT NULL,
        ended_at timestamptz,
        error_code text,
        error_message text
    );
    CREATE INDEX operations_next_step_idx ON operations (next_step_at) WHERE ended_at IS NULL;
    CREATE INDEX operations_ended_idx ON operations (ended_at) WHERE ended_at IS NOT NULL;

    CREATE TABLE imported_parts (
        topic_id bigint NOT NULL,
        import_id text COLLATE "C" NOT NULL,
        part bigint NOT NULL,
        digest bytea NOT NULL,
        message_count bigint NOT NULL,
        imported_at timestamptz NOT NULL,
        PRIMARY KEY (topic_id, import_id, part)
    );
    CREATE INDEX imported_parts_time_idx ON imported_parts (imported_at);

    CREATE TABLE project_settings (
        project text COLLATE "C" PRIMARY KEY,
        event_topic text NOT NULL,
        dead_letters_until timestamptz NOT NULL
    );
    CREATE TABLE shared_settings (
        name text COLLATE "C" PRIMARY KEY,
        definition jsonb NOT NULL,
        etag text NOT NULL,
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL
    );
    CREATE TABLE event_conditions (
        project text COLLATE "C" NOT NULL,
        kind text COLLATE "C" NOT NULL,
        subject text COLLATE "C" NOT NULL,
        since timestamptz NOT NULL,
        found_at timestamptz NOT NULL,
        amount bigint NOT NULL,
        PRIMARY KEY (project, kind, subject)
    );
    CREATE TABLE waiting_events (
        event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        project text NOT NULL,
        occurred_at timestamptz NOT NULL,
        event jsonb NOT NULL
    );
    CREATE TABLE project_events (
        project text COLLATE "C" NOT NULL,
        is_mark boolean NOT NULL,
        event_id bigint NOT NULL,
        occurred_at timestamptz NOT NULL,
        event jsonb NOT NULL,
        PRIMARY KEY (project, is_mark, event_id)
    );
"""

PUSH = """
    CREATE TABLE push_states (
        subscription_id bigint PRIMARY KEY,
        breaker text NOT NULL CHECK (breaker IN ('closed', 'open', 'half_open')),
        changed_at timestamptz NOT NULL,
        consecutive_failures integer NOT NULL,
        window_size integer NOT NULL,
        outstanding_requests integer NOT NULL,
        retry_at timestamptz,
        paused_reason text NOT NULL DEFAULT '',
        paused_at timestamptz,
        paused_by text,
        failing_since timestamptz,
        failed_requests bigint,
        last_status integer,
        last_reason text,
        failing_reported boolean,
        failing_messages jsonb,
        late_answers jsonb
    );
    CREATE TABLE push_failures (
        subscription_id bigint NOT NULL,
        failure_id bigint GENERATED ALWAYS AS IDENTITY,
        failed_at timestamptz NOT NULL,
        message_id text NOT NULL,
        delivery_attempt integer NOT NULL,
        endpoint text NOT NULL,
        status integer,
        latency interval NOT NULL,
        detail text NOT NULL,
        PRIMARY KEY (subscription_id, failure_id)
    );
    CREATE TABLE push_attempts (
        subscription_id bigint NOT NULL,
        minute timestamptz NOT NULL,
        status text NOT NULL,
        delivered boolean NOT NULL,
        requests bigint NOT NULL,
        latency interval NOT NULL,
        last_message_id text NOT NULL,
        PRIMARY KEY (subscription_id, minute, status)
    );
    CREATE INDEX push_attempts_minute_idx ON push_attempts (minute);
    CREATE TABLE breaker_changes (
        subscription_id bigint NOT NULL,
        change_id bigint GENERATED ALWAYS AS IDENTITY,
        changed_at timestamptz NOT NULL,
        state text NOT NULL,
        consecutive_failures integer NOT NULL,
        status integer,
        reason text NOT NULL,
        PRIMARY KEY (subscription_id, change_id)
    );
    CREATE TABLE signing_keys (
        key_id text PRIMARY KEY,
        private_key text NOT NULL,
        signs_from timestamptz NOT NULL,
        published_until timestamptz NOT NULL
    );
"""

# Tables that need not survive a crash of the server are UNLOGGED, so that no commit to them waits for the disk.
PROCESSES = """
    CREATE TABLE processes (
        process_id text PRIMARY KEY,
        seen_at timestamptz NOT NULL,
        version text NOT NULL,
        connections jsonb,
        database_connections integer NOT NULL
    );

    CREATE UNLOGGED TABLE readers (
        process_key text NOT NULL,
        subscription_id bigint NOT NULL,
        kind text NOT NULL,
        process text NOT NULL,
        client_id text NOT NULL,
        address text NOT NULL,
        principal text NOT NULL,
        since timestamptz NOT NULL,
        seen_at timestamptz NOT NULL,
        outstanding integer NOT NULL,
        oldest_since timestamptz,
        acks_per_second double precision NOT NULL,
        ack_p50 double precision,
        ack_p99 double precision
    );
    CREATE INDEX readers_subscription_idx ON readers (subscription_id);
    CREATE INDEX readers_process_idx ON readers (process_key);

    CREATE TABLE project_quotas (
        project text COLLATE "C" PRIMARY KEY,
        limits jsonb NOT NULL,
        principal_limits jsonb NOT NULL
    );
    CREATE UNLOGGED TABLE quota_buckets (
        project text COLLATE "C" NOT NULL,
        principal text COLLATE "C" NOT NULL,
        quota text COLLATE "C" NOT NULL,
        rate double precision NOT NULL,
        held double precision NOT NULL,
        usage double precision NOT NULL,
        balanced_at timestamptz NOT NULL,
        PRIMARY KEY (project, principal, quota)
    ) WITH (fillfactor = 50);

    CREATE UNLOGGED TABLE table_sizes (
        max_bytes bigint PRIMARY KEY,
        size_bytes bigint NOT NULL,
        is_full boolean NOT NULL,
        measured_at timestamptz NOT NULL,
        next_at timestamptz NOT NULL
    );

    CREATE UNLOGGED TABLE lag_samples (
        subscription_id bigint PRIMARY KEY,
        sampled_at timestamptz NOT NULL,
        undelivered_messages bigint NOT NULL,
        is_estimated boolean NOT NULL,
        undelivered_bytes bigint NOT NULL,
        oldest_unacked_at timestamptz,
        outstanding_messages bigint NOT NULL,
        blocked_messages bigint NOT NULL,
        dead_letters bigint NOT NULL,
        published_messages bigint NOT NULL,
        incoming_rate double precision,
        outgoing_rate double precision,
        state text NOT NULL,
        details jsonb NOT NULL
    ) WITH (fillfactor = 50);

    CREATE UNLOGGED TABLE lag_orders (
        project text COLLATE "C" NOT NULL,
        order_by text COLLATE "C" NOT NULL,
        began_at timestamptz NOT NULL,
        subscription_ids bigint[] NOT NULL,
        PRIMARY KEY (project, order_by, began_at)
    );
    CREATE UNLOGGED TABLE lag_passes (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        began_at timestamptz,
        after text COLLATE "C" NOT NULL DEFAULT '',
        sampled_at timestamptz,
        next_at timestamptz NOT NULL
    );

    CREATE TABLE lock_partitions ();
    CREATE TABLE lock_cleanup ();
    CREATE TABLE lock_dropping ();
    CREATE TABLE lock_declaring ();
    CREATE TABLE lock_measuring ();
    CREATE TABLE lock_events ();
    CREATE TABLE locked_names (name text PRIMARY KEY);
    CREATE TABLE notification_keys (key bytea PRIMARY KEY);
"""

ACCESS = """
    CREATE TABLE access_version (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        version bigint NOT NULL,
        credentials bigint NOT NULL
    );
    INSERT INTO access_version (version, credentials) VALUES (1, 1);
    CREATE TABLE access_changes (
        version bigint NOT NULL,
        project text NOT NULL,
        credentials boolean NOT NULL,
        PRIMARY KEY (version, project)
    );

    CREATE TABLE service_accounts (
        email text PRIMARY KEY,
        project text NOT NULL,
        unique_id text NOT NULL UNIQUE,
        display_name text NOT NULL,
        description text NOT NULL,
        disabled boolean NOT NULL,
        created_at timestamptz NOT NULL
    );
    CREATE INDEX service_accounts_project_idx ON service_accounts (project, email);
    CREATE TABLE service_account_keys (
        key_id text PRIMARY KEY,
        email text NOT NULL REFERENCES service_accounts (email) ON DELETE CASCADE,
        public_key text NOT NULL,
        created_at timestamptz NOT NULL
    );
    CREATE INDEX service_account_keys_email_idx ON service_account_keys (email, key_id);
    CREATE TABLE api_keys (
        name text PRIMARY KEY,
        display_name text NOT NULL,
        digest bytea NOT NULL UNIQUE,
        roles text[] NOT NULL,
        resources text[] NOT NULL,
        created_at timestamptz NOT NULL
    );
    CREATE TABLE console_sessions (
        digest bytea PRIMARY KEY,
        is_link boolean NOT NULL,
        member text NOT NULL,
        members text[] NOT NULL,
        credential text NOT NULL,
        signed_by text NOT NULL,
        until timestamptz,
        created_at timestamptz NOT NULL,
        used_at timestamptz NOT NULL,
        expires_at timestamptz NOT NULL
    );
    CREATE INDEX console_sessions_member_idx ON console_sessions (member, created_at);
    CREATE TABLE share_links (
        link_id text PRIMARY KEY,
        subscription_id bigint NOT NULL,
        digest bytea NOT NULL UNIQUE,
        permissions text[] NOT NULL,
        creator text NOT NULL,
        creator_members text[] NOT NULL,
        created_at timestamptz NOT NULL,
        expires_at timestamptz NOT NULL
    );
    CREATE INDEX share_links_subscription_idx ON share_links (subscription_id, link_id);
    CREATE TABLE access_token_keys (
        key_id text PRIMARY KEY,
        secret bytea NOT NULL,
        created_at timestamptz NOT NULL
    );

    CREATE TABLE policies (
        resource text COLLATE "C" PRIMARY KEY,
        bindings jsonb NOT NULL,
        etag bytea NOT NULL
    );
    CREATE TABLE custom_roles (
        name text COLLATE "C" PRIMARY KEY,
        title text NOT NULL,
        description text NOT NULL,
        stage text NOT NULL,
        permissions text[] NOT NULL,
        deleted boolean NOT NULL,
        etag bytea NOT NULL
    );

    CREATE TABLE audit_entries (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        project text NOT NULL,
        time timestamptz NOT NULL,
        times integer NOT NULL,
        method text NOT NULL,
        resource text NOT NULL,
        code text NOT NULL,
        principal text NOT NULL,
        credential text NOT NULL,
        address text NOT NULL,
        permission text NOT NULL,
        is_change boolean NOT NULL DEFAULT true
    );
    CREATE INDEX audit_entries_project_idx ON audit_entries (project, number);
    CREATE INDEX audit_entries_time_idx ON audit_entries (time);
"""

# Rows of `shards` and `cursors` are updated in place, so few of them are dead at a time.  But whenever a snapshot
# holds dead rows back an update takes another page, and only vacuum finds such pages again (a shard's row grew by
# 0.12 MB a minute under load, without end).  Empty pages are not truncated: that would lock all publishes out.
_IN_PLACE = """
        autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10, vacuum_truncate = off,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.0,
        autovacuum_analyze_threshold = 10000
"""

# A batch is a row: its bodies and attributes are arrays with an element for each message.
_BATCH = """
        shard_id bigint NOT NULL,
        publish_time timestamptz NOT NULL,
        last_seq bigint NOT NULL,
        count integer NOT NULL CHECK (count BETWEEN 1 AND 1000),
        size integer NOT NULL,
        ordering_key text,
        attributes jsonb[],
        data bytea[] NOT NULL,
        shared_attributes jsonb,
        id_seqs bigint[],
        expires_at timestamptz,
        PRIMARY KEY (shard_id, publish_time, last_seq)
"""

# A row for each message.  A query that starts at a sequence also has to bound `last_seq`, the column of the index.
# `body` is what filters read: the data, unless it is a large message in a row of its own, which is not fetched.
# `data_array` has the data as its one element, and `data_size` is its length: neither reads a large body.
_EACH_MESSAGE = """
    SELECT b.shard_id, b.publish_time, b.last_seq - b.count + ordinal AS seq, b.last_seq, b.ordering_key,
           CASE
               WHEN b.shared_attributes IS NULL THEN coalesce(b.attributes[ordinal], '{}')
               ELSE coalesce(b.attributes[ordinal], '{}') || b.shared_attributes
           END AS attributes,
           b.data[ordinal] AS data,
           CASE b.count
               WHEN 1 THEN b.size
               ELSE octet_length(b.data[ordinal]) + coalesce(octet_length(b.attributes[ordinal]::text), 0)
           END AS size,
           CASE WHEN b.count > 1 OR b.size <= 2000000 THEN b.data[ordinal] END AS body,
           CASE b.count WHEN 1 THEN b.data ELSE b.data[ordinal:ordinal] END AS data_array,
           CASE b.count
               WHEN 1 THEN b.size - coalesce(octet_length(b.attributes[1]::text), 0)
               ELSE octet_length(b.data[ordinal])
           END AS data_size,
           b.id_seqs[ordinal] AS id_seq, b.expires_at
    FROM {batches} AS b CROSS JOIN LATERAL generate_series(1, b.count) AS ordinal
"""

LOG = f"""
    CREATE TABLE shards (
        shard_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        topic_id bigint NOT NULL,
        ordinal integer NOT NULL,
        head bigint NOT NULL DEFAULT 0,
        last_publish_time timestamptz NOT NULL,
        open boolean NOT NULL DEFAULT true,
        frozen_at bigint,
        last_id_seq bigint NOT NULL DEFAULT 500000000000000,
        last_flush bigint,
        level integer,
        CONSTRAINT shards_frozen_check CHECK (head <= frozen_at)
    ) WITH (fillfactor = 20, {_IN_PLACE});
    CREATE INDEX ix_shards_topic_id ON shards (topic_id);

    CREATE TABLE message_batches ({_BATCH}) PARTITION BY RANGE (publish_time);
    CREATE INDEX message_batches_ordering_key_idx
        ON message_batches (shard_id, ordering_key, publish_time, last_seq) WHERE ordering_key IS NOT NULL;
    CREATE TABLE straggler_batches ({_BATCH}) WITH (toast_tuple_target = 8160);
    CREATE VIEW messages AS {_EACH_MESSAGE.replace("{batches}", "message_batches")};
    CREATE VIEW straggler_messages AS {_EACH_MESSAGE.replace("{batches}", "straggler_batches")};

    CREATE TABLE scheduled_messages (
        shard_id bigint NOT NULL,
        id_seq bigint NOT NULL,
        due_at timestamptz NOT NULL,
        accepted_at timestamptz NOT NULL,
        size integer NOT NULL,
        ordering_key text,
        attributes jsonb,
        data bytea NOT NULL,
        ttl bigint,
        PRIMARY KEY (shard_id, id_seq)
    );
    CREATE INDEX scheduled_messages_due_idx ON scheduled_messages (shard_id, due_at, id_seq);
    CREATE TABLE scheduled_ids (
        shard_id bigint NOT NULL,
        id_seq bigint NOT NULL,
        seq bigint NOT NULL,
        publish_time timestamptz NOT NULL,
        gone_at timestamptz,
        PRIMARY KEY (shard_id, id_seq)
    );
    CREATE INDEX scheduled_ids_seq_idx ON scheduled_ids (shard_id, seq);
    CREATE INDEX scheduled_ids_in_log_idx ON scheduled_ids (publish_time) WHERE gone_at IS NULL;
    CREATE INDEX scheduled_ids_gone_idx ON scheduled_ids (gone_at) WHERE gone_at IS NOT NULL;

    CREATE TABLE message_identities (
        shard_id bigint NOT NULL,
        digest uuid NOT NULL,
        seq bigint NOT NULL,
        published_at timestamptz NOT NULL
    ) PARTITION BY RANGE (published_at);
    CREATE INDEX message_identities_digest_idx ON message_identities (shard_id, digest);

    CREATE TABLE retracted_messages (
        shard_id bigint NOT NULL,
        id_seq bigint NOT NULL,
        seq bigint,
        publish_time timestamptz NOT NULL,
        retracted_at timestamptz NOT NULL,
        retracted_by text NOT NULL,
        head bigint NOT NULL,
        states jsonb,
        replacement_shard_id bigint,
        replacement_id_seq bigint,
        cancelled boolean,
        PRIMARY KEY (shard_id, id_seq)
    );
    CREATE INDEX retracted_messages_seq_idx ON retracted_messages (shard_id, seq);
    CREATE INDEX retracted_messages_publish_time_idx ON retracted_messages (publish_time);
"""

# `delivery_attempts` changes all the time and stays small.  By default autovacuum waits until a fifth of a table is
# dead, which would let this one bloat between vacuums.
DELIVERY = f"""
    CREATE TABLE cursors (
        shard_id bigint NOT NULL,
        subscription_id bigint NOT NULL,
        next_publish_time timestamptz NOT NULL,
        next_seq bigint NOT NULL,
        due_floor timestamptz NOT NULL,
        first_seq bigint,
        paused boolean NOT NULL DEFAULT false,
        due_first boolean NOT NULL DEFAULT true,
        filter_changed_at timestamptz,
        PRIMARY KEY (subscription_id, shard_id)
    ) WITH (fillfactor = 50, {_IN_PLACE});

    CREATE TABLE delivery_attempts (
        shard_id bigint NOT NULL,
        subscription_id bigint NOT NULL,
        attempt_id bigint NOT NULL,
        part bigint NOT NULL,
        status text NOT NULL CHECK (status IN ('delivering', 'pending', 'nacked', 'exhausted')),
        attempt_number integer NOT NULL,
        next_delivery_at timestamptz NOT NULL,
        delivered_at timestamptz NOT NULL,
        seqs int8multirange NOT NULL,
        open bit varying NOT NULL,
        acked bit varying,
        first_publish_time timestamptz NOT NULL,
        last_publish_time timestamptz NOT NULL,
        ordering_key text,
        out_count integer,
        attempt_numbers integer[],
        waiting int8multirange,
        retry_at timestamptz,
        failure text,
        redriven boolean,
        PRIMARY KEY (shard_id, subscription_id, attempt_id, part)
    ) WITH (
        fillfactor = 70,
        autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.0,
        autovacuum_analyze_threshold = 10000
    );
    CREATE INDEX delivery_attempts_due_idx ON delivery_attempts (shard_id, subscription_id, next_delivery_at);
    CREATE INDEX delivery_attempts_exhausted_idx ON delivery_attempts (shard_id, subscription_id)
        WHERE status = 'exhausted';
    CREATE UNIQUE INDEX delivery_attempts_ordering_key_idx
        ON delivery_attempts (shard_id, subscription_id, ordering_key) WHERE ordering_key IS NOT NULL;

    CREATE TABLE snapshot_positions (
        shard_id bigint NOT NULL,
        snapshot_id bigint NOT NULL,
        next_publish_time timestamptz NOT NULL,
        next_seq bigint NOT NULL,
        PRIMARY KEY (snapshot_id, shard_id)
    );
    CREATE TABLE snapshot_outstanding (
        shard_id bigint NOT NULL,
        snapshot_id bigint NOT NULL,
        attempt_id bigint NOT NULL,
        part bigint NOT NULL,
        seqs int8multirange NOT NULL,
        open bit varying NOT NULL,
        first_publish_time timestamptz NOT NULL,
        last_publish_time timestamptz NOT NULL,
        ordering_key text,
        waiting int8multirange,
        PRIMARY KEY (snapshot_id, shard_id, attempt_id, part)
    );

    CREATE TABLE dead_letters (
        shard_id bigint NOT NULL,
        publish_time timestamptz NOT NULL,
        seq bigint NOT NULL,
        source_shard_id bigint NOT NULL,
        source_seq bigint NOT NULL,
        source_publish_time timestamptz NOT NULL,
        source_topic text NOT NULL,
        subscription_id bigint NOT NULL,
        subscription text NOT NULL,
        delivery_attempts integer NOT NULL,
        reason text NOT NULL,
        resolution text,
        resolved_at timestamptz,
        resolved_by text,
        successor_shard bigint,
        successor_seq bigint,
        response text DEFAULT '' NOT NULL,
        fingerprint text DEFAULT '' NOT NULL,
        PRIMARY KEY (shard_id, publish_time, seq)
    );
    CREATE INDEX dead_letters_source_idx ON dead_letters (source_shard_id, source_seq, subscription_id);
    CREATE INDEX dead_letters_unresolved_idx ON dead_letters (subscription_id) WHERE resolution IS NULL;
    CREATE INDEX dead_letters_publish_time_idx ON dead_letters (publish_time);
    CREATE INDEX dead_letters_project_idx
        ON dead_letters (split_part(subscription, '/', 2), publish_time, shard_id, seq);

    CREATE TABLE delivery_journal (
        shard_id bigint NOT NULL,
        subscription_id bigint NOT NULL,
        bucket bigint NOT NULL,
        number bigint GENERATED ALWAYS AS IDENTITY,
        time timestamptz NOT NULL,
        event text NOT NULL,
        attempt integer NOT NULL,
        seqs int8multirange NOT NULL,
        principal text NOT NULL,
        client text NOT NULL,
        answer text NOT NULL,
        PRIMARY KEY (shard_id, subscription_id, bucket, number)
    );
    CREATE INDEX delivery_journal_time_idx ON delivery_journal (subscription_id, time);
    CREATE INDEX delivery_journal_number_idx ON delivery_journal (subscription_id, number);
    CREATE TABLE delivery_records (
        shard_id bigint NOT NULL,
        subscription_id bigint NOT NULL,
        bucket bigint NOT NULL,
        recorded_at timestamptz NOT NULL,
        principal text NOT NULL,
        client text NOT NULL,
        answer text NOT NULL,
        entries bytea NOT NULL
    ) PARTITION BY RANGE (recorded_at);
    CREATE INDEX delivery_records_bucket_idx ON delivery_records (shard_id, subscription_id, bucket);
"""

# Views that ignore writes.  Where the tables behind them are distributed over nodes, tables take their place
# (broker/db/schema/distribution.py), so that a topic is read without querying all nodes.
CATALOG = """
    CREATE VIEW known_shards AS SELECT shard_id, topic_id, level FROM shards;
    CREATE RULE known_shards_insert AS ON INSERT TO known_shards DO INSTEAD NOTHING;
    CREATE RULE known_shards_update AS ON UPDATE TO known_shards DO INSTEAD NOTHING;
    CREATE RULE known_shards_delete AS ON DELETE TO known_shards DO INSTEAD NOTHING;
    CREATE VIEW held_claims AS SELECT DISTINCT subscription_id FROM cursors WHERE paused;
    CREATE RULE held_claims_insert AS ON INSERT TO held_claims DO INSTEAD NOTHING;
    CREATE RULE held_claims_update AS ON UPDATE TO held_claims DO INSTEAD NOTHING;
    CREATE RULE held_claims_delete AS ON DELETE TO held_claims DO INSTEAD NOTHING;
"""

OUTBOX = """
    CREATE TABLE outbox (
        n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        xid bigint NOT NULL,
        role text NOT NULL,
        written_at timestamptz NOT NULL,
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
    );
    CREATE INDEX outbox_xid_idx ON outbox (xid, n);
    CREATE TABLE refused_messages (
        n bigint PRIMARY KEY,
        refused_at timestamptz NOT NULL,
        reason text NOT NULL,
        role text NOT NULL,
        written_at timestamptz NOT NULL,
        topic text NOT NULL,
        ordering_key text,
        attributes jsonb,
        data bytea NOT NULL
    );
    CREATE TABLE outbox_progress (
        one boolean PRIMARY KEY DEFAULT true CONSTRAINT outbox_progress_one_check CHECK (one),
        awake_until timestamptz NOT NULL,
        relayed_to bigint NOT NULL,
        -- Projects of which something is left up to relayed_to, but nothing up to behind_to.
        behind text[] NOT NULL DEFAULT '{}',
        behind_to bigint NOT NULL DEFAULT 0
    );
    INSERT INTO outbox_progress (awake_until, relayed_to) VALUES ('-infinity', 0);
    CREATE TABLE application_grants (
        role text NOT NULL,
        project text COLLATE "C" NOT NULL,
        granted_at timestamptz NOT NULL,
        PRIMARY KEY (role, project)
    );
"""

HISTORY = """
    CREATE TABLE history_series (
        series_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        resource text COLLATE "C" NOT NULL,
        metric text NOT NULL,
        label text NOT NULL,
        used_at timestamptz NOT NULL,
        CONSTRAINT history_series_resource_metric_label_key UNIQUE (resource, metric, label)
    ) WITH (fillfactor = 80);
    CREATE INDEX history_series_used_at_idx ON history_series (used_at);
    CREATE TABLE history_points (
        resolution integer NOT NULL,
        chunk integer NOT NULL,
        start_time timestamptz NOT NULL,
        writer bigint NOT NULL,
        is_gauge boolean NOT NULL,
        series_ids integer[] NOT NULL,
        amounts bigint[] NOT NULL,
        PRIMARY KEY (resolution, chunk, start_time, writer, is_gauge)
    );
    CREATE INDEX history_points_start_time_idx ON history_points (resolution, start_time);
"""

TRIGGERS = """
    CREATE CONSTRAINT TRIGGER outbox_wakes AFTER INSERT ON outbox DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (new.wakes) EXECUTE FUNCTION wake_outbox_relay();
"""


def upgrade() -> None:
    tables = (RESOURCES, PUSH, PROCESSES, ACCESS, LOG, DELIVERY, CATALOG, OUTBOX, HISTORY)
    run_script(*tables, create_functions(*SQL_FUNCTIONS), TRIGGERS)
    key = text("INSERT INTO notification_keys (key) VALUES (:key)")  # a parameter, so that no log has it
    op.get_bind().execute(key, {"key": secrets.token_bytes(32)})


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
