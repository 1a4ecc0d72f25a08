"""The schema, as SQLAlchemy Core metadata.

It must equal what the migrations build (tests/db/migrations); partitions come and go and are not part of it.  Hot
tables are keyed by shard_id first: a shard is the unit of order, of locking and of distribution.
"""

from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    column,
    table,
    text,
)
from sqlalchemy.dialects.postgresql import BIT, INT8MULTIRANGE, JSONB
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import UserDefinedType

from broker.db.driver.locks import LOCKS

metadata = MetaData()

# What the migrations make beside the tables and the functions (db/schema/revision_steps.py).
VIEWS = ("messages", "straggler_messages", "known_shards", "held_claims")


class JsonPath(UserDefinedType[str]):
    """jsonpath, written and read as text."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSONPATH"


_NO_LABELS = text("'{}'::jsonb")

# --- Resources -------------------------------------------------------------------------------------------

topics = Table(
    "topics",
    metadata,
    Column("topic_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text(collation="C"), nullable=False, unique=True),
    Column("message_retention", Interval),
    # The fields without a column, in the API's JSON (core/catalog/columns.py).
    Column("settings", JSONB, nullable=False, server_default=_NO_LABELS),
    Column("created_at", DateTime(timezone=True), nullable=False),
    # Null: messages are checked against no schema.  One that is gone is in no row of `payload_schemas`.
    Column("schema_id", BigInteger),
    Column("schema_encoding", Text),
    Column("first_revision_id", Text),
    Column("last_revision_id", Text),
    # Why publishes are refused (model/freeze.py); null: they are not.
    Column("frozen", JSONB(none_as_null=True)),
    # JSON, null for none; text, since the order of what is in it is nobody's to change
    Column("message_transforms", Text),
    # Ordering keys are in so many of its shards, the first ones; null: in all (docs/decisions/0051).
    Column("key_shards", Integer),
    # Of `message_retention`, if it has nanoseconds (core/catalog/columns.py).
    Column("exact_durations", JSONB(none_as_null=True)),
)

# A subscription was last used at about `last_active_at`.  Shortly before it expires it is watched, last at
# `idle_watched_at`, for `idle_watched` in all (core/expiration/expiration.py).
subscriptions = Table(
    "subscriptions",
    metadata,
    Column("subscription_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text(collation="C"), nullable=False, unique=True),
    Column("topic", Text, nullable=False),
    Column("topic_id", BigInteger, nullable=False, index=True),
    Column("retain_acked_messages", Boolean, nullable=False),
    Column("message_retention", Interval, nullable=False),
    Column("settings", JSONB, nullable=False, server_default=_NO_LABELS),  # as of topics
    Column("enable_message_ordering", Boolean, nullable=False),
    Column("expiration_ttl", Interval),
    Column("filter", Text, nullable=False, server_default=text("''")),
    Column("filter_path", JsonPath),
    Column("dead_letter_topic", Text),
    Column("max_delivery_attempts", Integer),
    Column("detached", Boolean, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("last_active_at", DateTime(timezone=True), nullable=False),
    Column("idle_watched", Interval, nullable=False, server_default=text("'00:00:00'::interval")),
    Column("idle_watched_at", DateTime(timezone=True)),
    Column("message_transforms", Text),  # as of topics
    # Null: attributes alone decide.  Else `filter_path` is true wherever the filter may be
    # (core/filtering/jsonpath.py).
    Column("body_path", JsonPath),
    # Null: since it was made, as far as is known, messages are pushed where they are now, or pulled.
    Column("endpoint_set_at", DateTime(timezone=True)),
    Column("exact_durations", JSONB(none_as_null=True)),  # as of topics
    # Null: the filter is what it was when the subscription was made.  Else the filters before it, `filter` alone
    # decides about messages published from `filter_changed_at` on, and so do these paths.
    Column("earlier_filters", JSONB(none_as_null=True)),
    Column("filter_changed_at", DateTime(timezone=True)),
    Column("newest_filter_path", JsonPath),
    Column("newest_body_path", JsonPath),
    # Every broker process reads all push subscriptions, now and then.
    Index(
        "subscriptions_push_idx",
        "subscription_id",
        postgresql_where=text("settings -> 'pushConfig' ? 'pushEndpoint' AND NOT detached"),
    ),
    # Once a second those with a dead-letter topic are looked at.
    Index(
        "subscriptions_dead_letter_idx", "subscription_id", postgresql_where=text("dead_letter_topic IS NOT NULL")
    ),
    # Once a minute those with webhook secrets are.
    Index(
        "subscriptions_secrets_idx",
        "subscription_id",
        postgresql_where=text("settings #> '{extensions,push}' ? 'webhookSecrets'"),
    ),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("snapshot_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text(collation="C"), nullable=False, unique=True),
    Column("topic", Text, nullable=False),
    Column("topic_id", BigInteger, nullable=False, index=True),
    Column("labels", JSONB, nullable=False, server_default=_NO_LABELS),
    Column("expire_time", DateTime(timezone=True), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

# "payload" apart from the schema of the database.
payload_schemas = Table(
    "payload_schemas",
    metadata,
    Column("schema_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text(collation="C"), nullable=False, unique=True),
    Column("type", Text, nullable=False),
    # What a commit is asked for; null: what Google asks for.
    Column("compatibility", Text),
)

# A later revision has a higher number.
payload_schema_revisions = Table(
    "payload_schema_revisions",
    metadata,
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    Column("schema_id", BigInteger, nullable=False),
    Column("revision_id", Text, nullable=False),
    Column("definition", Text, nullable=False),
    # Of protobuf's: a FileDescriptorSet, and the name of the message in it.
    Column("compiled", LargeBinary),
    Column("root_message", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
    UniqueConstraint("schema_id", "revision_id"),
)

# Schedules, "projects/p/schedules/…" (features/schedules/schedule.py).  `next_at`: null while it is paused and once
# it has ended.  A tick appends its message and moves `next_at` in one transaction, which has the row's lock.
schedules = Table(
    "schedules",
    metadata,
    Column("name", Text(collation="C"), primary_key=True),
    Column("definition", JSONB, nullable=False),
    Column("anchor", DateTime(timezone=True), nullable=False),
    Column("next_at", DateTime(timezone=True)),
    Column("paused", Boolean, nullable=False),
    Column("ticks", BigInteger, nullable=False),
    Column("last_outcome", Text),
    Column("created_by", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Index("schedules_next_idx", "next_at", postgresql_where=text("next_at IS NOT NULL")),
    Index("schedules_topic_idx", text("(definition ->> 'topic')")),
    Index(
        "schedules_project_idx",
        text("split_part(name, '/schedules/', 1)"),
        "next_at",
        postgresql_where=text("next_at IS NOT NULL"),
    ),
)

# What became of the last ticks of each.
schedule_ticks = Table(
    "schedule_ticks",
    metadata,
    Column("schedule", Text(collation="C"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("planned_at", DateTime(timezone=True)),
    Column("ran_at", DateTime(timezone=True), nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("message_id", Text, nullable=False),
)

# Long work, "projects/p/operations/…" (features/operations/operation.py).  `progress` is where it goes on, `counts`
# what became of what it has met: a step changes both in the transaction in which it works, and takes the row's lock
# for it.
operations = Table(
    "operations",
    metadata,
    Column("name", Text(collation="C"), primary_key=True),
    Column("project", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("started_by", Text, nullable=False),
    Column("request", JSONB, nullable=False),
    Column("progress", JSONB, nullable=False),
    Column("counts", JSONB, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("is_estimate", Boolean, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("next_step_at", DateTime(timezone=True), nullable=False),
    Column("ended_at", DateTime(timezone=True)),
    Column("error_code", Text),
    Column("error_message", Text),
    Index("operations_next_step_idx", "next_step_at", postgresql_where=text("ended_at IS NULL")),
    Index("operations_ended_idx", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
)

# A part of an import, by its number: written in the transaction that stores its messages, so that a part that is
# sent again is known.  `digest`: SHA-256 of what was sent.
imported_parts = Table(
    "imported_parts",
    metadata,
    Column("topic_id", BigInteger, nullable=False),
    Column("import_id", Text(collation="C"), nullable=False),
    Column("part", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("message_count", BigInteger, nullable=False),
    Column("imported_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("topic_id", "import_id", "part"),
    Index("imported_parts_time_idx", "imported_at"),
)

# What was set for a project, "projects/p".  Its dead letters of before `dead_letters_until` have been counted.
project_settings = Table(
    "project_settings",
    metadata,
    Column("project", Text(collation="C"), primary_key=True),
    Column("event_topic", Text, nullable=False),
    Column("dead_letters_until", DateTime(timezone=True), nullable=False),
)

# What is so just now, and was told of (features/events/event_detection.py).
event_conditions = Table(
    "event_conditions",
    metadata,
    Column("project", Text(collation="C")),
    Column("kind", Text(collation="C")),
    Column("subject", Text(collation="C")),
    Column("since", DateTime(timezone=True), nullable=False),
    Column("found_at", DateTime(timezone=True), nullable=False),
    Column("amount", BigInteger, nullable=False),
    PrimaryKeyConstraint("project", "kind", "subject"),
)

# Events that are not published yet.
waiting_events = Table(
    "waiting_events",
    metadata,
    Column("event_id", BigInteger, Identity(always=True), primary_key=True),
    Column("project", Text, nullable=False),
    Column("occurred_at", DateTime(timezone=True), nullable=False),
    Column("event", JSONB, nullable=False),
)

# --- Push ------------------------------------------------------------------------------------------------

# How deliveries to a push subscription's endpoint go, as the process that delivers to it last wrote it down; no row
# means nothing to tell.  `retry_at` before `changed_at`: since then it waits for slots.  Deliveries go by
# `paused_reason` alone; a pull subscription that is paused has a row, too.
push_states = Table(
    "push_states",
    metadata,
    Column("subscription_id", BigInteger, primary_key=True, autoincrement=False),
    Column("breaker", Text, nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    Column("consecutive_failures", Integer, nullable=False),
    # Not "window": that is a word of SQL's.
    Column("window_size", Integer, nullable=False),
    Column("outstanding_requests", Integer, nullable=False),
    Column("retry_at", DateTime(timezone=True)),
    Column("paused_reason", Text, nullable=False, server_default=text("''")),
    Column("paused_at", DateTime(timezone=True)),
    Column("paused_by", Text),
    # The requests that have failed since the last success; null if there are none.
    Column("failing_since", DateTime(timezone=True)),
    Column("failed_requests", BigInteger),
    Column("last_status", Integer),
    Column("last_reason", Text),
    Column("failing_reported", Boolean),
    Column("failing_messages", JSONB),
)

# The last failures of each push subscription.
push_failures = Table(
    "push_failures",
    metadata,
    Column("subscription_id", BigInteger, nullable=False),
    Column("failure_id", BigInteger, Identity(always=True), nullable=False),
    Column("failed_at", DateTime(timezone=True), nullable=False),
    Column("message_id", Text, nullable=False),
    Column("delivery_attempt", Integer, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("status", Integer),
    Column("latency", Interval, nullable=False),
    Column("detail", Text, nullable=False),
    PrimaryKeyConstraint("subscription_id", "failure_id"),
)

# Push requests that ended in a minute, by their status (model/push_history.py); kept for a day.
push_attempts = Table(
    "push_attempts",
    metadata,
    Column("subscription_id", BigInteger, nullable=False),
    Column("minute", DateTime(timezone=True), nullable=False),
    Column("status", Text, nullable=False),
    Column("delivered", Boolean, nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("latency", Interval, nullable=False),
    Column("last_message_id", Text, nullable=False),
    PrimaryKeyConstraint("subscription_id", "minute", "status"),
    Index("push_attempts_minute_idx", "minute"),
)

# The last changes of each endpoint's circuit breaker.
breaker_changes = Table(
    "breaker_changes",
    metadata,
    Column("subscription_id", BigInteger, nullable=False),
    Column("change_id", BigInteger, Identity(always=True), nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    Column("state", Text, nullable=False),
    Column("consecutive_failures", Integer, nullable=False),
    Column("status", Integer),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("subscription_id", "change_id"),
)

# The keys that sign the OIDC tokens of pushes: one signs from `signs_from` on until the next one does, and is
# published until `published_until`.
signing_keys = Table(
    "signing_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("private_key", Text, nullable=False),
    Column("signs_from", DateTime(timezone=True), nullable=False),
    Column("published_until", DateTime(timezone=True), nullable=False),
)

# --- Broker processes ------------------------------------------------------------------------------------

# The broker processes that run: each push subscription is delivered by one of them.  `version` is the newest schema
# that a process knows.  `connections`: how many those
# projects have to it whose connections are limited.
processes = Table(
    "processes",
    metadata,
    Column("process_id", Text, primary_key=True),
    Column("seen_at", DateTime(timezone=True), nullable=False),
    Column("version", Text, nullable=False),
    Column("connections", JSONB(none_as_null=True)),
    Column("database_connections", Integer, nullable=False),
)

# Who pulls and streams (core/pulling/reader.py), as each process (`process_key`) last wrote it down.  Not logged:
# after a crash of the server it is written anew within seconds.
readers = Table(
    "readers",
    metadata,
    Column("process_key", Text, nullable=False),
    Column("subscription_id", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("process", Text, nullable=False),
    Column("client_id", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("since", DateTime(timezone=True), nullable=False),
    Column("seen_at", DateTime(timezone=True), nullable=False),
    Column("outstanding", Integer, nullable=False),
    Column("oldest_since", DateTime(timezone=True)),
    Column("acks_per_second", Double, nullable=False),
    Column("ack_p50", Double),
    Column("ack_p99", Double),
    Index("readers_subscription_idx", "subscription_id"),
    Index("readers_process_idx", "process_key"),
    prefixes=["UNLOGGED"],
)

# What was set for a project, "projects/p": {"publishMessages": 100, …}.
project_quotas = Table(
    "project_quotas",
    metadata,
    Column("project", Text(collation="C"), primary_key=True),
    Column("limits", JSONB, nullable=False),
    Column("principal_limits", JSONB, nullable=False),
)

# The buckets that all processes share (features/quotas/quota_bucket.py); `principal` is empty for that of a
# project. `held` is of the time `balanced_at`, and less than 0 in debt; `usage`: a second, lately.  After a crash
# of the server all are full again: not logged, so that no commit here waits for the disk.
quota_buckets = Table(
    "quota_buckets",
    metadata,
    Column("project", Text(collation="C")),
    Column("principal", Text(collation="C")),
    Column("quota", Text(collation="C")),
    Column("rate", Double, nullable=False),
    Column("held", Double, nullable=False),
    Column("usage", Double, nullable=False),
    Column("balanced_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("project", "principal", "quota"),
    prefixes=["UNLOGGED"],
    postgresql_with={"fillfactor": "50"},
)

# What the broker's tables took when they were measured last, by the limit that brokers were given
# (--database-size-max): those with the same limit pause and resume publishing together.  `is_full`: it is paused.
# After a crash of the server it is measured again: not logged, so that no commit here waits for the disk.
table_sizes = Table(
    "table_sizes",
    metadata,
    Column("max_bytes", BigInteger, primary_key=True, autoincrement=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("is_full", Boolean, nullable=False),
    Column("measured_at", DateTime(timezone=True), nullable=False),
    Column("next_at", DateTime(timezone=True), nullable=False),
    prefixes=["UNLOGGED"],
)

# Each is locked as a whole, and has neither columns nor rows (db/driver/locks.py).
lock_tables = tuple(Table(name, metadata) for name in LOCKS)

# A transaction inserts a name and deletes it again, and has it until it ends: nobody sees a row.
locked_names = Table("locked_names", metadata, Column("name", Text, primary_key=True))

# One row: what seals notifications (db/driver/notification_seal.py).
notification_keys = Table("notification_keys", metadata, Column("key", LargeBinary, primary_key=True))

# --- Access ----------------------------------------------------------------------------------------------

# One row.  `version` is raised by whatever changes a credential or a policy, in the same transaction; `credentials`
# is the version at which a credential changed last.
access_version = Table(
    "access_version",
    metadata,
    Column("only_row", Boolean, CheckConstraint("only_row"), primary_key=True, server_default=text("true")),
    Column("version", BigInteger, nullable=False),
    Column("credentials", BigInteger, nullable=False),
)

# What changed with each of the newest versions: `project` is "projects/p", or empty if all projects are affected;
# `credentials`: a credential changed.  A version without rows may have changed anything.
access_changes = Table(
    "access_changes",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("project", Text, primary_key=True),
    Column("credentials", Boolean, nullable=False),
)

service_accounts = Table(
    "service_accounts",
    metadata,
    Column("email", Text, primary_key=True),
    Column("project", Text, nullable=False),  # "projects/p"
    Column("unique_id", Text, nullable=False, unique=True),
    Column("display_name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index("service_accounts_project_idx", "project", "email"),
)

# Of a key only the public half is kept (PEM).
service_account_keys = Table(
    "service_account_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("email", Text, ForeignKey("service_accounts.email", ondelete="CASCADE"), nullable=False),
    Column("public_key", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index("service_account_keys_email_idx", "email", "key_id"),
)

# `digest`: SHA-256 of the key, which has 256 random bits of its own.  `resources`: those that it is restricted to;
# empty: its project.
api_keys = Table(
    "api_keys",
    metadata,
    Column("name", Text, primary_key=True),  # "projects/p/apiKeys/…"
    Column("display_name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("roles", ARRAY(Text), nullable=False),
    Column("resources", ARRAY(Text), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

access_token_keys = Table(
    "access_token_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

# Who has which roles on a resource and all below it; `resource` is its name, "projects/p" and so on, and empty for
# what is above projects.  `bindings`: [{"role": …, "members": […]}].
policies = Table(
    "policies",
    metadata,
    Column("resource", Text(collation="C"), primary_key=True),
    Column("bindings", JSONB, nullable=False),
    Column("etag", LargeBinary, nullable=False),
)

custom_roles = Table(
    "custom_roles",
    metadata,
    Column("name", Text(collation="C"), primary_key=True),  # "projects/p/roles/…"
    Column("title", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("stage", Text, nullable=False),
    Column("permissions", ARRAY(Text), nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("etag", LargeBinary, nullable=False),
)

# Who did what, and how often (`times`); `project` is empty where the resource is in none.  `is_change`: the call
# changed something, so that denials may not displace this entry.
audit_entries = Table(
    "audit_entries",
    metadata,
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    Column("project", Text, nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
    Column("times", Integer, nullable=False),
    Column("method", Text, nullable=False),
    Column("resource", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("credential", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("permission", Text, nullable=False),
    Column("is_change", Boolean, nullable=False, server_default=text("true")),
    Index("audit_entries_project_idx", "project", "number"),
    Index("audit_entries_time_idx", "time"),
)

# --- The log (hot) ---------------------------------------------------------------------------------------

# A topic's logs.  `head` is the last sequence given out; taking more holds the row until commit, so the order
# of sequences is the order of commits, and dense.  `last_publish_time` never goes back within a shard.
# While a topic is frozen `frozen_at` is its head: no broker, of whatever version, can take more.
# `last_id_seq` is the last number given to a message that waits for its time (model/message_id.py).
# `last_flush` is a number of the last flush that gave something out on a condition: its other statements see by it
# whether it did (features/deduplication/identities.py).  `level`: what is in it is urgent, 0 the most; null: it is
# not.
shards = Table(
    "shards",
    metadata,
    Column("shard_id", BigInteger, Identity(always=True), primary_key=True),
    Column("topic_id", BigInteger, nullable=False, index=True),
    Column("ordinal", Integer, nullable=False),
    Column("head", BigInteger, nullable=False, server_default=text("0")),
    Column("last_publish_time", DateTime(timezone=True), nullable=False),
    Column("open", Boolean, nullable=False, server_default=text("true")),
    Column("frozen_at", BigInteger),
    Column("last_id_seq", BigInteger, nullable=False, server_default=text("'500000000000000'::bigint")),
    Column("last_flush", BigInteger),
    Column("level", Integer),
    CheckConstraint("head <= frozen_at", name="shards_frozen_check"),
    postgresql_with={"fillfactor": "20"},
)


def _batch_columns() -> list[SchemaItem]:
    """A batch: consecutive messages, published at one time with one ordering key (or none) (docs/decisions/0011).

    Its bodies and attributes are arrays with an element for each (no attributes: a null, or no array); `size` is
    that of all bodies and of the attributes as text.  All messages have the `shared_attributes` besides their own,
    which `size` leaves out.  `id_seqs`: what their ids are made of where that is not their sequences, for they had
    them before (`scheduled_messages`).  From `expires_at` on (null: never) none is delivered.  The views `messages`
    and `straggler_messages` have a row for each message.
    """
    return [
        Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
        Column("publish_time", DateTime(timezone=True), primary_key=True),
        Column("last_seq", BigInteger, primary_key=True, autoincrement=False),
        Column("count", Integer, nullable=False),
        Column("size", Integer, nullable=False),
        Column("ordering_key", Text),
        Column("attributes", ARRAY(JSONB)),
        Column("data", ARRAY(LargeBinary), nullable=False),
        Column("shared_attributes", JSONB),
        Column("id_seqs", ARRAY(BigInteger)),
        Column("expires_at", DateTime(timezone=True)),
        CheckConstraint("count BETWEEN 1 AND 1000"),
    ]


message_batches = Table(
    "message_batches",
    metadata,
    *_batch_columns(),
    Index(
        "message_batches_ordering_key_idx",
        "shard_id",
        "ordering_key",
        "publish_time",
        "last_seq",
        postgresql_where=text("ordering_key IS NOT NULL"),
    ),
    postgresql_partition_by="RANGE (publish_time)",
)

# Batches that would keep a whole partition, for a few messages that are still out (docs/decisions/0004).
straggler_batches = Table("straggler_batches", metadata, *_batch_columns())

# Messages that wait for `due_at`.  Who deletes a row delivers or cancels the message: whoever appends it to the log
# does both in one transaction.  `id_seq` is what its id is made of, now and in the log; `ttl`, for how many
# microseconds it is delivered once it is there (null: for as long as it is retained).
scheduled_messages = Table(
    "scheduled_messages",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("id_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("due_at", DateTime(timezone=True), nullable=False),
    Column("accepted_at", DateTime(timezone=True), nullable=False),
    Column("size", Integer, nullable=False),
    Column("ordering_key", Text),
    Column("attributes", JSONB(none_as_null=True)),
    Column("data", LargeBinary, nullable=False),
    Column("ttl", BigInteger),
    Index("scheduled_messages_due_idx", "shard_id", "due_at", "id_seq"),
)

# The places in the log of those whose time has come: a row for each, as long as the log has it, and then (from
# `gone_at` on) as long as deliveries are recorded.
scheduled_ids = Table(
    "scheduled_ids",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("id_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("publish_time", DateTime(timezone=True), nullable=False),
    Index("scheduled_ids_seq_idx", "shard_id", "seq"),
    Column("gone_at", DateTime(timezone=True)),
    Index("scheduled_ids_in_log_idx", "publish_time", postgresql_where=text("gone_at IS NULL")),
    Index("scheduled_ids_gone_idx", "gone_at", postgresql_where=text("gone_at IS NOT NULL")),
)

# `digest` of a message's identity (features/deduplication/identity.py), and what its id is made of.  One may have
# several rows: the newest counts.  Partitions go as a whole when no topic's window reaches back so far.
message_identities = Table(
    "message_identities",
    metadata,
    Column("shard_id", BigInteger, nullable=False),
    Column("digest", Uuid, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("published_at", DateTime(timezone=True), nullable=False),
    Index("message_identities_digest_idx", "shard_id", "digest"),
    postgresql_partition_by="RANGE (published_at)",
)

# Nothing on the way of a message reads it: the log has the message no more (docs/decisions/0048).  A row for each,
# as long as its partition would be there or a dead letter of it may come back.  `seq`: where it stood; null: it was
# still to come.  `states`: the subscriptions that it had got to, by how (features/retraction/retraction.py).
retracted_messages = Table(
    "retracted_messages",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("id_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger),
    Column("publish_time", DateTime(timezone=True), nullable=False),
    Column("retracted_at", DateTime(timezone=True), nullable=False),
    Column("retracted_by", Text, nullable=False),
    Column("head", BigInteger, nullable=False),
    Column("states", JSONB(none_as_null=True)),
    Column("replacement_shard_id", BigInteger),
    Column("replacement_id_seq", BigInteger),
    Column("cancelled", Boolean),  # before its time came; null: it was retracted
    Index("retracted_messages_seq_idx", "shard_id", "seq"),
    Index("retracted_messages_publish_time_idx", "publish_time"),
)

# --- Delivery (hot) --------------------------------------------------------------------------------------

# A subscription's position in one shard: all before (next_publish_time, next_seq) has been claimed.  Its row lock
# is the claim lock.  Nothing is due before `due_floor`, or claimed while it is `paused`; nothing before `first_seq`
# was ever the subscription's (none: it is older than this column).  `due_first`: whose turn it is, of redeliveries
# and fresh messages (core/claiming/transaction/allocation.py).  `filter_changed_at`: no claim may use a filter that
# was read earlier (docs/decisions/0077); a cursor made after the change needs none, for who has not heard of it
# knows no such shard.
cursors = Table(
    "cursors",
    metadata,
    Column("shard_id", BigInteger, autoincrement=False, nullable=False),
    Column("subscription_id", BigInteger, autoincrement=False, nullable=False),
    Column("next_publish_time", DateTime(timezone=True), nullable=False),
    Column("next_seq", BigInteger, nullable=False),
    Column("due_floor", DateTime(timezone=True), nullable=False),
    Column("first_seq", BigInteger),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("due_first", Boolean, nullable=False, server_default=text("true")),
    Column("filter_changed_at", DateTime(timezone=True)),
    # One index for both questions: the cursor of a subscription in a shard, and all cursors of a subscription.
    PrimaryKeyConstraint("subscription_id", "shard_id"),
    postgresql_with={"fillfactor": "50"},
)

# Messages that are out: one row per response, a bit of `open` per sequence of `seqs`, in order.
# `acked` is kept for exactly-once subscriptions only: a bit for each that was acked under this attempt.
#
# A row with an ordering key is that key's: as long as it is there, other messages of the key wait (A6).  Of its
# sequences the first `out_count` are out under the attempt id, the others came back with them and wait, each with
# its attempt number so far; `retry_at` is when the first of those may go out.  `waiting` are the sequences in which
# further messages of the key wait, as far as the cursor has come.
#
# `failure` is how the attempt has failed, once it has (model/dead_letter.py).  `redriven` (null: not so): messages
# that came back from a dead-letter topic; they are delivered however old they are (docs/decisions/0031).
delivery_attempts = Table(
    "delivery_attempts",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("subscription_id", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt_id", BigInteger, primary_key=True, autoincrement=False),
    Column("part", BigInteger, primary_key=True, autoincrement=False),
    Column("status", Text, nullable=False),
    Column("attempt_number", Integer, nullable=False),
    Column("next_delivery_at", DateTime(timezone=True), nullable=False),
    Column("delivered_at", DateTime(timezone=True), nullable=False),
    Column("seqs", INT8MULTIRANGE, nullable=False),
    Column("open", BIT(varying=True), nullable=False),
    Column("acked", BIT(varying=True)),
    Column("first_publish_time", DateTime(timezone=True), nullable=False),
    Column("last_publish_time", DateTime(timezone=True), nullable=False),
    Column("ordering_key", Text),
    Column("out_count", Integer),
    Column("attempt_numbers", ARRAY(Integer)),
    Column("waiting", INT8MULTIRANGE),
    Column("retry_at", DateTime(timezone=True)),
    Column("failure", Text),
    Column("redriven", Boolean),
    Index("delivery_attempts_due_idx", "shard_id", "subscription_id", "next_delivery_at"),
    Index(
        "delivery_attempts_exhausted_idx",
        "shard_id",
        "subscription_id",
        postgresql_where=text("status = 'exhausted'"),
    ),
    Index(
        "delivery_attempts_ordering_key_idx",
        "shard_id",
        "subscription_id",
        "ordering_key",
        unique=True,
        postgresql_where=text("ordering_key IS NOT NULL"),
    ),
    postgresql_with={"fillfactor": "70"},
)

# What a snapshot holds of one shard: the cursor, and copies of the delivery attempts that were out.
snapshot_positions = Table(
    "snapshot_positions",
    metadata,
    Column("shard_id", BigInteger, autoincrement=False, nullable=False),
    Column("snapshot_id", BigInteger, autoincrement=False, nullable=False),
    Column("next_publish_time", DateTime(timezone=True), nullable=False),
    Column("next_seq", BigInteger, nullable=False),
    PrimaryKeyConstraint("snapshot_id", "shard_id"),
)

snapshot_outstanding = Table(
    "snapshot_outstanding",
    metadata,
    Column("shard_id", BigInteger, autoincrement=False, nullable=False),
    Column("snapshot_id", BigInteger, autoincrement=False, nullable=False),
    Column("attempt_id", BigInteger, autoincrement=False, nullable=False),
    Column("part", BigInteger, autoincrement=False, nullable=False),
    Column("seqs", INT8MULTIRANGE, nullable=False),
    Column("open", BIT(varying=True), nullable=False),
    Column("first_publish_time", DateTime(timezone=True), nullable=False),
    Column("last_publish_time", DateTime(timezone=True), nullable=False),
    Column("ordering_key", Text),
    Column("waiting", INT8MULTIRANGE),
    PrimaryKeyConstraint("snapshot_id", "shard_id", "attempt_id", "part"),
)

# The place of a dead letter (shard_id, publish_time, seq), that of its message, and why the message was
# dead-lettered (model/dead_letter.py), with the normalised response of its endpoint and the fingerprint of both
# (model/failure_cause.py).  `resolution` (null: it was not resolved) and the columns that follow are
# those of features/dead_letters/dead_letter_state.py.  A row without a resolution goes with its dead letter,
# another one KEPT later.
dead_letters = Table(
    "dead_letters",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("publish_time", DateTime(timezone=True), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("source_shard_id", BigInteger, nullable=False),
    Column("source_seq", BigInteger, nullable=False),
    Column("source_publish_time", DateTime(timezone=True), nullable=False),
    Column("source_topic", Text, nullable=False),
    Column("subscription_id", BigInteger, nullable=False),
    Column("subscription", Text, nullable=False),
    Column("delivery_attempts", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("resolution", Text),
    Column("resolved_at", DateTime(timezone=True)),
    Column("resolved_by", Text),
    Column("successor_shard", BigInteger),
    Column("successor_seq", BigInteger),
    Column("response", Text, nullable=False, server_default=text("''")),
    Column("fingerprint", Text, nullable=False, server_default=text("''")),
    Index("dead_letters_source_idx", "source_shard_id", "source_seq", "subscription_id"),
    Index("dead_letters_publish_time_idx", "publish_time"),
    Index("dead_letters_project_idx", text("split_part(subscription, '/', 2)"), "publish_time", "shard_id", "seq"),
)

# What happened to messages of a shard for a subscription (model/journal.py), each row in the transaction that it
# tells of.  `bucket` is that of all its sequences, or SPAN; `number` is in the order of what happened to any one
# message.
delivery_journal = Table(
    "delivery_journal",
    metadata,
    Column("shard_id", BigInteger, nullable=False),
    Column("subscription_id", BigInteger, nullable=False),
    Column("bucket", BigInteger, nullable=False),
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("time", DateTime(timezone=True), nullable=False),
    Column("event", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("seqs", INT8MULTIRANGE, nullable=False),
    Column("principal", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("answer", Text, nullable=False),
    PrimaryKeyConstraint("shard_id", "subscription_id", "bucket", "number"),
    Index("delivery_journal_time_idx", "subscription_id", "time"),
    Index("delivery_journal_number_idx", "subscription_id", "number"),
)

# Who acknowledged which messages of a bucket of sequences (core/records/delivery_record.py), as it was written at
# `recorded_at`, within a second or so.  Nothing on the way of a message reads it, and partitions are dropped whole.
delivery_records = Table(
    "delivery_records",
    metadata,
    Column("shard_id", BigInteger, nullable=False),
    Column("subscription_id", BigInteger, nullable=False),
    Column("bucket", BigInteger, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False),
    Column("principal", Text, nullable=False),
    Column("client", Text, nullable=False),
    Column("answer", Text, nullable=False),
    Column("entries", LargeBinary, nullable=False),
    Index("delivery_records_bucket_idx", "shard_id", "subscription_id", "bucket"),
    postgresql_partition_by="RANGE (recorded_at)",
)

# --- The catalog's copy of what hot tables say -----------------------------------------------------------

# On one server these are views, and writes to them do nothing.  Where shards are distributed over nodes they are
# tables of the catalog's own, so that a topic is read without querying all nodes: whoever writes the hot table
# writes its copy too (docs/decisions/0053).
known_shards = table(
    "known_shards", column("shard_id", BigInteger), column("topic_id", BigInteger), column("level", Integer)
)
held_claims = table("held_claims", column("subscription_id", BigInteger))

# --- The outbox of applications' transactions ------------------------------------------------------------

# A message (of `topic_id`), or acks or nacks (of `subscription_id`), written by the function write_outbox_message
# or write_outbox_acks in a transaction of the user's, `xid`.  Who deletes a row relays it: whoever appends a
# message to the log does both in one transaction.  `name`: of the topic or subscription; `wakes`: the first of its
# transaction.
outbox = Table(
    "outbox",
    metadata,
    Column("n", BigInteger, Identity(always=True), primary_key=True),
    Column("xid", BigInteger, nullable=False),
    Column("role", Text, nullable=False),
    Column("written_at", DateTime(timezone=True), nullable=False),
    Column("wakes", Boolean, nullable=False),
    Column("name", Text, nullable=False),
    Column("topic_id", BigInteger),
    Column("subscription_id", BigInteger),
    Column("size", Integer, nullable=False),
    Column("ordering_key", Text),
    Column("attributes", JSONB(none_as_null=True)),
    Column("data", LargeBinary),
    Column("ack_ids", ARRAY(Text)),
    Column("nack", Boolean, nullable=False, server_default=text("false")),
    Index("outbox_xid_idx", "xid", "n"),
)

# Messages that could not be published any more when their transaction had committed, and why; kept for some days.
refused_messages = Table(
    "refused_messages",
    metadata,
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("refused_at", DateTime(timezone=True), nullable=False),
    Column("reason", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("written_at", DateTime(timezone=True), nullable=False),
    Column("topic", Text, nullable=False),
    Column("ordering_key", Text),
    Column("attributes", JSONB(none_as_null=True)),
    Column("data", LargeBinary, nullable=False),
)

# One row.  Until `awake_until` some broker reads the outbox without a notification, and need not be told; of what
# has a number up to `relayed_to` it has taken all that was committed then; of the projects in `behind` only what
# has a number up to `behind_to`.
outbox_progress = Table(
    "outbox_progress",
    metadata,
    Column("one", Boolean, primary_key=True, server_default=text("true")),
    Column("awake_until", DateTime(timezone=True), nullable=False),
    Column("relayed_to", BigInteger, nullable=False),
    Column("behind", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("behind_to", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("one", name="outbox_progress_one_check"),
)

# Roles of PostgreSQL that may write to the outbox for a project, "projects/p".
application_grants = Table(
    "application_grants",
    metadata,
    Column("role", Text, primary_key=True),
    Column("project", Text(collation="C"), primary_key=True),
    Column("granted_at", DateTime(timezone=True), nullable=False),
)
