"""Topics, subscriptions, snapshots, and the hot tables of the log.

Locks: creates only; touches nothing that exists.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# The hot tables change all the time and stay small; waiting for a fifth of a large table to be dead, as the
# defaults do, lets them bloat between vacuums.
AUTOVACUUM = (
    "autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000, "
    "autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.0, "
    "autovacuum_analyze_threshold = 10000"
)

# `shards` and `cursors` are updated in place, so that few of their rows are dead at a time; but whenever somebody's
# snapshot held the dead ones back, an update took a page more, and only vacuum finds such pages again (a shard's
# row under load: 0.12 MB a minute, for ever).  Empty pages stay: to truncate them would lock all publishes out.
AUTOVACUUM_IN_PLACE = (
    "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10, vacuum_truncate = off, "
    "autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.0, "
    "autovacuum_analyze_threshold = 10000"
)

# A batch: consecutive messages, published at one time with one ordering key or none, the last of them `last_seq`.
# Its bodies and attributes are arrays with an element for each (no attributes: a null, or no array).  `size` is of
# all bodies and of the attributes as text.
BATCH_COLUMNS = """
        shard_id bigint NOT NULL,
        publish_time timestamptz NOT NULL,
        last_seq bigint NOT NULL,
        count integer NOT NULL CHECK (count BETWEEN 1 AND 1000),
        size integer NOT NULL,
        ordering_key text,
        attributes jsonb[],
        data bytea[] NOT NULL,
        PRIMARY KEY (shard_id, publish_time, last_seq)
"""

# A row a message.  Whoever looks from a sequence on says so of `last_seq` as well: that is what the index has.
EACH_MESSAGE = """
    CREATE VIEW {view} AS
    SELECT b.shard_id, b.publish_time, b.last_seq - b.count + ordinal AS seq, b.last_seq, b.ordering_key,
           coalesce(b.attributes[ordinal], '{{}}') AS attributes, b.data[ordinal] AS data,
           CASE b.count
               WHEN 1 THEN b.size
               ELSE octet_length(b.data[ordinal]) + coalesce(octet_length(b.attributes[ordinal]::text), 0)
           END AS size
    FROM {table} AS b CROSS JOIN LATERAL generate_series(1, b.count) AS ordinal
"""

STATEMENTS = [
    """
    CREATE TABLE topics (
        topic_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        labels jsonb NOT NULL DEFAULT '{}',
        message_retention interval,
        kept jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL
    )
    """,
    """
    CREATE TABLE subscriptions (
        subscription_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        topic text NOT NULL,
        topic_id bigint NOT NULL,
        ack_deadline_seconds integer NOT NULL,
        retain_acked_messages boolean NOT NULL,
        message_retention interval NOT NULL,
        labels jsonb NOT NULL DEFAULT '{}',
        enable_message_ordering boolean NOT NULL,
        extensions jsonb NOT NULL DEFAULT '{}',
        enable_exactly_once_delivery boolean NOT NULL,
        expiration_ttl interval,
        filter text NOT NULL DEFAULT '',
        filter_path jsonpath,
        dead_letter_topic text,
        max_delivery_attempts integer,
        minimum_backoff interval,
        maximum_backoff interval,
        detached boolean NOT NULL,
        push_config jsonb NOT NULL DEFAULT '{}',
        kept jsonb NOT NULL DEFAULT '{}',
        created_at timestamptz NOT NULL,
        last_active_at timestamptz NOT NULL,
        idle_watched interval NOT NULL DEFAULT '00:00:00',
        idle_watched_at timestamptz
    )
    """,
    "CREATE INDEX ix_subscriptions_topic_id ON subscriptions (topic_id)",
    """
    CREATE INDEX subscriptions_push_idx ON subscriptions (subscription_id)
    WHERE push_config ? 'endpoint' AND NOT detached
    """,
    """
    CREATE TABLE snapshots (
        snapshot_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        topic text NOT NULL,
        topic_id bigint NOT NULL,
        labels jsonb NOT NULL DEFAULT '{}',
        expire_time timestamptz NOT NULL,
        created_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX ix_snapshots_topic_id ON snapshots (topic_id)",
    """
    CREATE TABLE snapshot_positions (
        shard_id bigint NOT NULL,
        snapshot_id bigint NOT NULL,
        next_publish_time timestamptz NOT NULL,
        next_seq bigint NOT NULL,
        PRIMARY KEY (snapshot_id, shard_id)
    )
    """,
    """
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
    )
    """,
    """
    CREATE TABLE push_states (
        subscription_id bigint PRIMARY KEY,
        breaker text NOT NULL CHECK (breaker IN ('closed', 'open', 'half_open')),
        changed_at timestamptz NOT NULL,
        consecutive_failures integer NOT NULL,
        window_size integer NOT NULL,
        outstanding_requests integer NOT NULL,
        retry_at timestamptz,
        paused_reason text NOT NULL DEFAULT ''
    )
    """,
    """
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
    )
    """,
    """
    CREATE TABLE signing_keys (
        key_id text PRIMARY KEY,
        private_key text NOT NULL,
        signs_from timestamptz NOT NULL,
        published_until timestamptz NOT NULL
    )
    """,
    """
    CREATE TABLE processes (
        process_id text PRIMARY KEY,
        seen_at timestamptz NOT NULL
    )
    """,
    f"""
    CREATE TABLE shards (
        shard_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        topic_id bigint NOT NULL,
        ordinal integer NOT NULL,
        head bigint NOT NULL DEFAULT 0,
        last_publish_time timestamptz NOT NULL,
        open boolean NOT NULL DEFAULT true
    ) WITH (fillfactor = 20, {AUTOVACUUM_IN_PLACE})
    """,
    "CREATE INDEX ix_shards_topic_id ON shards (topic_id)",
    f"""
    CREATE TABLE message_batches (
        {BATCH_COLUMNS}
    ) PARTITION BY RANGE (publish_time)
    """,
    """
    CREATE INDEX message_batches_ordering_key_idx
    ON message_batches (shard_id, ordering_key, publish_time, last_seq)
    WHERE ordering_key IS NOT NULL
    """,
    f"""
    CREATE TABLE straggler_batches (
        {BATCH_COLUMNS}
    ) WITH (toast_tuple_target = 8160)
    """,
    EACH_MESSAGE.format(view="messages", table="message_batches"),
    EACH_MESSAGE.format(view="straggler_messages", table="straggler_batches"),
    f"""
    CREATE TABLE cursors (
        shard_id bigint NOT NULL,
        subscription_id bigint NOT NULL,
        next_publish_time timestamptz NOT NULL,
        next_seq bigint NOT NULL,
        due_floor timestamptz NOT NULL,
        PRIMARY KEY (subscription_id, shard_id)
    ) WITH (fillfactor = 50, {AUTOVACUUM_IN_PLACE})
    """,
    f"""
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
        PRIMARY KEY (shard_id, subscription_id, attempt_id, part)
    ) WITH (fillfactor = 70, {AUTOVACUUM})
    """,
    """
    CREATE INDEX delivery_attempts_due_idx
    ON delivery_attempts (shard_id, subscription_id, next_delivery_at)
    """,
    """
    CREATE INDEX delivery_attempts_exhausted_idx
    ON delivery_attempts (shard_id, subscription_id)
    WHERE status = 'exhausted'
    """,
    """
    CREATE UNIQUE INDEX delivery_attempts_ordering_key_idx
    ON delivery_attempts (shard_id, subscription_id, ordering_key)
    WHERE ordering_key IS NOT NULL
    """,
    """
    CREATE FUNCTION nth_sequence(seqs int8multirange, n integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN (
        SELECT s
        FROM unnest(seqs) AS r CROSS JOIN LATERAL generate_series(lower(r), upper(r) - 1) AS s
        ORDER BY s
        OFFSET n - 1
        LIMIT 1
    )
    """,
    # The sequences of a key's row that are not settled: from the first open bit on, for an ack counts only once all
    # earlier messages of the key are acked.  Without a subquery of its own it is inlined: a seek or a snapshot asks
    # for every key's row, and most are open from their first message on.
    """
    CREATE FUNCTION unsettled(seqs int8multirange, open bit varying) RETURNS int8multirange
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
        CASE position(B'1' IN open)
            WHEN 0 THEN '{}'::int8multirange
            WHEN 1 THEN seqs
            ELSE seqs * int8multirange(int8range(nth_sequence(seqs, position(B'1' IN open)), NULL))
        END
    """,
]


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("The broker migrates forward only; restore a backup to go back.")
