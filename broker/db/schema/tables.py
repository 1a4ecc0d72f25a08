"""The schema, as SQLAlchemy Core metadata.

It must equal the result of the migrations (tests/db/migrations), except for partitions, which are created and
dropped at run time.  The keys of hot tables begin with shard_id, because a shard is the unit of order, of locking
and of distribution.
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

# Objects that the migrations create besides tables and functions (db/schema/revision_steps.py).
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
    # Null: messages are not checked.  A schema that was deleted has no row in `payload_schemas`.
    Column("schema_id", BigInteger),
    Column("schema_encoding", Text),
    Column("first_revision_id", Text),
    Column("last_revision_id", Text),
    # Why publishes are refused (model/freeze.py); null: they are not.
    Column("frozen", JSONB(none_as_null=True)),
    # JSON, null for none; stored as text because the order within it must not change
    Column("message_transforms", Text),
    # Ordering keys use only the first so many shards; null: all (docs/decisions/0051).
    Column("key_shards", Integer),
    # The text of `message_retention`, if it has nanoseconds (core/catalog/columns.py).
    Column("exact_durations", JSONB(none_as_null=True)),
)

# `last_active_at`: about when the subscription was last used.  Shortly before it expires it is watched, last at
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
    # Null: the filter reads only attributes.  Otherwise `filter_path` is true for every message that the filter may
    # match (core/filtering/jsonpath.py).
    Column("body_path", JsonPath),
    # Null: as far as is known, messages have been pushed to the present endpoint, or pulled, since the subscription
    # was created.
    Column("endpoint_set_at", DateTime(timezone=True)),
    Column("exact_durations", JSONB(none_as_null=True)),  # as of topics
    # Null: the filter has not changed since the subscription was created.  Otherwise the earlier filters; `filter`
    # alone applies to messages published from `filter_changed_at` on, and so do these paths.
    Column("earlier_filters", JSONB(none_as_null=True)),
    Column("filter_changed_at", DateTime(timezone=True)),
    Column("newest_filter_path", JsonPath),
    Column("newest_body_path", JsonPath),
    # Every broker process periodically reads all push subscriptions.
    Index(
        "subscriptions_push_idx",
        "subscription_id",
        postgresql_where=text("settings -> 'pushConfig' ? 'pushEndpoint' AND NOT detached"),
    ),
    # Subscriptions with a dead-letter topic are read once a second.
    Index(
        "subscriptions_dead_letter_idx", "subscription_id", postgresql_where=text("dead_letter_topic IS NOT NULL")
    ),
    # Subscriptions with webhook secrets are read once a minute.
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

# Named "payload" to distinguish it from the schema of the database.
payload_schemas = Table(
    "payload_schemas",
    metadata,
    Column("schema_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text(collation="C"), nullable=False, unique=True),
    Column("type", Text, nullable=False),
    # The compatibility that a commit must preserve; null: that which Google requires.
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
    # For protobuf: a FileDescriptorSet, and the name of the message in it.
    Column("compiled", LargeBinary),
    Column("root_message", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
    UniqueConstraint("schema_id", "revision_id"),
)

# Schedules, "projects/p/schedules/…" (features/schedules/schedule.py).  `next_at`: null while it is paused and once
# it has ended; `paused_at` and `paused_by`: since when it is paused, and by whom if that is known.  A tick appends
# its message and moves `next_at` in one transaction, which has the row's lock.
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
    Column("paused_at", DateTime(timezone=True)),
    Column("paused_by", Text),
    Index("schedules_next_idx", "next_at", postgresql_where=text("next_at IS NOT NULL")),
    Index("schedules_topic_idx", text("(definition ->> 'topic')")),
    Index(
        "schedules_project_idx",
        text("split_part(name, '/schedules/', 1)"),
        "next_at",
        postgresql_where=text("next_at IS NOT NULL"),
    ),
)

# The outcomes of each schedule's last ticks.
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

# Long-running operations, "projects/p/operations/…" (features/operations/operation.py).  `progress` is the point
# from which the operation continues, `counts` its results so far: a step locks the row and changes both in the
# transaction in which it works.
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

# A part of an import, by its number.  It is written in the transaction that stores the messages of the part, so
# that a part that is sent again is recognized.  `digest`: SHA-256 of the part as it was sent.
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

# The settings of a project, "projects/p".  Dead letters before `dead_letters_until` have been counted.
project_settings = Table(
    "project_settings",
    metadata,
    Column("project", Text(collation="C"), primary_key=True),
    Column("event_topic", Text, nullable=False),
    Column("dead_letters_until", DateTime(timezone=True), nullable=False),
)

# Settings of a project that its users share, "projects/p/maskingRules/…", "…/savedViews/…" and so on
# (features/project_settings).  `definition` is as the API has it; `etag` changes with each change.
shared_settings = Table(
    "shared_settings",
    metadata,
    Column("name", Text(collation="C"), primary_key=True),
    Column("definition", JSONB, nullable=False),
    Column("etag", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("updated_at", DateTime(timezone=True), nullable=False),
)

# Conditions that hold and were reported (features/events/event_detection.py).
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

# The last events of a project, and its last marks: notes that callers make, about deployments for example.  Events
# have the `event_id` of `waiting_events`, and the ids of marks are numbers of the same sequence.  `event` has all
# fields that the API shows.
project_events = Table(
    "project_events",
    metadata,
    Column("project", Text(collation="C"), nullable=False),
    Column("is_mark", Boolean, nullable=False),
    Column("event_id", BigInteger, nullable=False),
    Column("occurred_at", DateTime(timezone=True), nullable=False),
    Column("event", JSONB, nullable=False),
    PrimaryKeyConstraint("project", "is_mark", "event_id"),
)

# --- Push ------------------------------------------------------------------------------------------------

# The state of a push subscription's endpoint, as last written by the process that delivers to it; no row means that
# there is nothing to report.  A `retry_at` before `changed_at` is the time since which the endpoint has been
# waiting for slots.  Only `paused_reason` pauses deliveries; a paused pull subscription has a row, too.
push_states = Table(
    "push_states",
    metadata,
    Column("subscription_id", BigInteger, primary_key=True, autoincrement=False),
    Column("breaker", Text, nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    Column("consecutive_failures", Integer, nullable=False),
    # Not "window", which is a keyword of SQL.
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
    # Requests that were accepted after their ack deadline, since the last that was accepted in time; null: none.
    Column("late_answers", JSONB(none_as_null=True)),
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

# The keys that sign the OIDC tokens of pushes.  A key signs from `signs_from` on until the next one does, and is
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

# The running broker processes; each push subscription is delivered by one of them.  `version` is the newest schema
# that a process knows.  `connections`: the number of its connections for each project that has a limit.
processes = Table(
    "processes",
    metadata,
    Column("process_id", Text, primary_key=True),
    Column("seen_at", DateTime(timezone=True), nullable=False),
    Column("version", Text, nullable=False),
    Column("connections", JSONB(none_as_null=True)),
    Column("database_connections", Integer, nullable=False),
)

# Readers (core/pulling/reader.py), as last written by each process (`process_key`).  The table is unlogged: after a
# crash of the server it is written again within seconds.
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

# The quotas of a project, "projects/p": {"publishMessages": 100, …}.
project_quotas = Table(
    "project_quotas",
    metadata,
    Column("project", Text(collation="C"), primary_key=True),
    Column("limits", JSONB, nullable=False),
    Column("principal_limits", JSONB, nullable=False),
)

# The buckets that all processes share (features/quotas/quota_bucket.py); `principal` is empty for the bucket of a
# project.  `held` is the value at `balanced_at`, and negative in debt; `usage`: the recent rate per second.  The
# table is unlogged, so that no commit here waits for the disk; after a crash of the server all buckets are full.
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

# The size of the broker's tables when it was last measured, by the limit of the brokers (--database-size-max):
# those with the same limit pause and resume publishing together.  `is_full`: publishing is paused.  The table is
# unlogged, so that no commit here waits for the disk; after a crash of the server the size is measured again.
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

# The lag of each subscription when it was last sampled (features/lag_board); only the sampler writes this table.  A
# subscription without a row has not been sampled; a row outlives its subscription by some minutes.  A row at rest
# (no backlog, and no message published since the previous sample) is not written again while nothing changes: every
# pass confirms its values.  `oldest_unacked_at`: the publish time of the oldest message that is not acknowledged;
# null: there is none.  `is_estimated`: `undelivered_messages` is an estimate, as `undelivered_bytes` always is.
# `published_messages`: the number of messages that were ever published to the shards of its topic.  The rates are
# in messages a second since the previous sample; null: there was none.  `details`: further values that are shown
# (features/lag_board/sample.py).  The table is unlogged: after a crash of the server the subscriptions are sampled
# again.
lag_samples = Table(
    "lag_samples",
    metadata,
    Column("subscription_id", BigInteger, primary_key=True, autoincrement=False),
    Column("sampled_at", DateTime(timezone=True), nullable=False),
    Column("undelivered_messages", BigInteger, nullable=False),
    Column("is_estimated", Boolean, nullable=False),
    Column("undelivered_bytes", BigInteger, nullable=False),
    Column("oldest_unacked_at", DateTime(timezone=True)),
    Column("outstanding_messages", BigInteger, nullable=False),
    Column("blocked_messages", BigInteger, nullable=False),
    Column("dead_letters", BigInteger, nullable=False),
    Column("published_messages", BigInteger, nullable=False),
    Column("incoming_rate", Double),
    Column("outgoing_rate", Double),
    Column("state", Text, nullable=False),
    Column("details", JSONB, nullable=False),
    prefixes=["UNLOGGED"],
    postgresql_with={"fillfactor": "50"},
)

# The subscriptions of a project in an order of their samples, as of the pass of `began_at`, once it had sampled the
# project; lists page through it (features/lag_board/list_page.py).  `subscription_ids` are in descending order of
# the value that `order_by` names.
lag_orders = Table(
    "lag_orders",
    metadata,
    Column("project", Text(collation="C"), nullable=False),
    Column("order_by", Text(collation="C"), nullable=False),
    Column("began_at", DateTime(timezone=True), nullable=False),
    Column("subscription_ids", ARRAY(BigInteger), nullable=False),
    PrimaryKeyConstraint("project", "order_by", "began_at"),
    prefixes=["UNLOGGED"],
)

# One row: the pass over all subscriptions in progress, which began at `began_at` (null: there is none), and has
# sampled those with names up to `after`.  The last complete pass began at `sampled_at` (null: there was none).  The
# process that has locked the row samples; the next process may do so from `next_at` on.
lag_passes = Table(
    "lag_passes",
    metadata,
    Column("only_row", Boolean, CheckConstraint("only_row"), primary_key=True, server_default=text("true")),
    Column("began_at", DateTime(timezone=True)),
    Column("after", Text(collation="C"), nullable=False, server_default=text("''")),
    Column("sampled_at", DateTime(timezone=True)),
    Column("next_at", DateTime(timezone=True), nullable=False),
    prefixes=["UNLOGGED"],
)

# Tables that are only locked as a whole; they have neither columns nor rows (db/driver/locks.py).
lock_tables = tuple(Table(name, metadata) for name in LOCKS)

# A transaction that inserts a name and deletes it again holds the name until its end; no row is ever visible.
locked_names = Table("locked_names", metadata, Column("name", Text, primary_key=True))

# One row: the key that seals notifications (db/driver/notification_seal.py).
notification_keys = Table("notification_keys", metadata, Column("key", LargeBinary, primary_key=True))

# --- Access ----------------------------------------------------------------------------------------------

# One row.  Every change of a credential or a policy increments `version` in the same transaction; `credentials` is
# the version of the last change of a credential.
access_version = Table(
    "access_version",
    metadata,
    Column("only_row", Boolean, CheckConstraint("only_row"), primary_key=True, server_default=text("true")),
    Column("version", BigInteger, nullable=False),
    Column("credentials", BigInteger, nullable=False),
)

# The changes of the newest versions: `project` is "projects/p", or empty if all projects are affected;
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

# Only the public half of a key is stored (PEM).
service_account_keys = Table(
    "service_account_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("email", Text, ForeignKey("service_accounts.email", ondelete="CASCADE"), nullable=False),
    Column("public_key", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index("service_account_keys_email_idx", "email", "key_id"),
)

# `digest`: SHA-256 of the key, which has 256 random bits.  `resources`: those that it is restricted to; empty: its
# project.
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

# Sessions of the console, and links that sign in once (`is_link`).  `digest`: SHA-256 of what the cookie or the
# link has, 256 random bits.  `member`, `members` and `credential` are those of the caller, and `signed_by` is the
# key of its issuer; whether the credential still exists is checked with each page.  `until`: when the credential
# ends by itself.
console_sessions = Table(
    "console_sessions",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("is_link", Boolean, nullable=False),
    Column("member", Text, nullable=False),
    Column("members", ARRAY(Text), nullable=False),
    Column("credential", Text, nullable=False),
    Column("signed_by", Text, nullable=False),
    Column("until", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("used_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Index("console_sessions_member_idx", "member", "created_at"),
)

# Links to the pushes of one subscription.  `digest`: SHA-256 of the token in the link, which has 256 random bits.
# `creator` may do what the link permits; `creator_members` are the members of policies that it matched.
share_links = Table(
    "share_links",
    metadata,
    Column("link_id", Text, primary_key=True),
    Column("subscription_id", BigInteger, nullable=False),  # the link ends with the subscription
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("permissions", ARRAY(Text), nullable=False),
    Column("creator", Text, nullable=False),
    Column("creator_members", ARRAY(Text), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Index("share_links_subscription_idx", "subscription_id", "link_id"),
)

access_token_keys = Table(
    "access_token_keys",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

# The policy of a resource, which also applies to everything below it.  `resource` is its name, "projects/p" and so
# on, or empty for the level above projects.  `bindings`: [{"role": …, "members": […]}].
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

# The audit log: which caller did what, and how often (`times`).  `project` is empty if the resource is in none.
# `is_change`: the call changed something, so denials must not displace this entry.
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

# The logs of topics.  `head` is the last sequence that was given out.  Taking more locks the row until the commit,
# so sequences are dense and in the order of commits.  `last_publish_time` never decreases within a shard.  While a
# topic is frozen, `frozen_at` is its head, so that no broker of any version can take more.  `last_id_seq` is the
# last number given to a scheduled message (model/message_id.py).  `last_flush` is the number of the last flush that
# gave out sequences on a condition, by which its other statements see whether it did
# (features/deduplication/identities.py).  `level`: the priority of urgent messages, 0 being the most urgent; null:
# the messages are not urgent.
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

# Batches that would keep a whole partition because of a few outstanding messages (docs/decisions/0004).
straggler_batches = Table("straggler_batches", metadata, *_batch_columns())

# Messages that are scheduled for `due_at`.  Deleting a row delivers or cancels the message: the transaction that
# appends it to the log also deletes its row.  `id_seq` is the number from which its id is derived, before and
# after.  `ttl`: its time to live in microseconds once it is published (null: for as long as it is retained).
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

# The positions of scheduled messages that were published.  A row exists as long as the log has the message, and
# then (from `gone_at` on) as long as deliveries are recorded.
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

# The `digest` of a message's identity (features/deduplication/identity.py), and the number from which its id is
# derived.  An identity may have several rows, of which the newest counts.  A partition is dropped when no topic's
# window reaches back so far.
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

# Retracted messages, which the log does not have any more; the path of a message does not read this table
# (docs/decisions/0048).  A row exists as long as the partition of its message would exist, or a dead letter of it
# may be redriven.  `seq`: its sequence; null: it was still scheduled.  `states`: the subscriptions that had
# received it, by delivery state (features/retraction/retraction.py).
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
    Column("cancelled", Boolean),  # before its scheduled time; null: it was retracted
    Index("retracted_messages_seq_idx", "shard_id", "seq"),
    Index("retracted_messages_publish_time_idx", "publish_time"),
)

# --- Delivery (hot) --------------------------------------------------------------------------------------

# The position of a subscription in one shard: all messages before (next_publish_time, next_seq) have been claimed.
# Its row lock is the claim lock.  Nothing is due before `due_floor`, and nothing is claimed while it is `paused`.
# Messages before `first_seq` never belonged to the subscription (null: it is older than this column).  `due_first`:
# whether redeliveries or fresh messages have the next turn (core/claiming/transaction/allocation.py).
# `filter_changed_at`: no claim may use a filter that was read earlier (docs/decisions/0077).  A cursor that was
# created after the change needs no such time, because a process that does not know of the change does not know the
# shard either.
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
    # One index for two lookups: the cursor of a subscription in a shard, and all cursors of a subscription.
    PrimaryKeyConstraint("subscription_id", "shard_id"),
    postgresql_with={"fillfactor": "50"},
)

# Outstanding messages: one row per response, with a bit of `open` for each sequence of `seqs`, in order.  `acked`
# is set only for exactly-once subscriptions: a bit for each message that was acknowledged under this attempt.
#
# A row with an ordering key belongs to that key: while it exists, other messages of the key wait (A6).  The first
# `out_count` of its sequences are outstanding under the attempt id.  The others came back with them and wait, each
# with its attempt number so far; `retry_at` is the time from which the first of them may be delivered.  `waiting`
# are the sequences in which further messages of the key wait, up to the cursor.
#
# `failure` is how the attempt failed, if it did (model/dead_letter.py).  `redriven` (null: no): the messages were
# redriven from a dead-letter topic; they are delivered however old they are (docs/decisions/0031).
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

# The content of a snapshot for one shard: the cursor, and copies of the delivery attempts that were outstanding.
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

# The position of a dead letter (shard_id, publish_time, seq), that of its message, and why the message was
# dead-lettered (model/dead_letter.py), with the normalised response of its endpoint and the fingerprint of both
# (model/failure_cause.py).  `resolution` (null: it is not resolved) and the columns after it are explained in
# features/dead_letters/dead_letter_state.py.  A row without a resolution is deleted with its dead letter, any other
# one KEPT later.
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
    # How many of a subscription are unresolved.
    Index("dead_letters_unresolved_idx", "subscription_id", postgresql_where=text("resolution IS NULL")),
    Index("dead_letters_publish_time_idx", "publish_time"),
    Index("dead_letters_project_idx", text("split_part(subscription, '/', 2)"), "publish_time", "shard_id", "seq"),
)

# The journal: what happened to messages of a shard for a subscription (model/journal.py).  Each row is written in
# the transaction that it reports.  `bucket` is that of all its sequences, or SPAN; `number` orders the rows of any
# one message.
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

# The record of deliveries: who acknowledged which messages of a bucket of sequences
# (core/records/delivery_record.py), written at `recorded_at`, within about a second.  The path of a message does
# not read it, and partitions are dropped as a whole.
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

# On one server these are views, and writes to them do nothing.  If shards are distributed over nodes, they are
# tables of the catalog, so that a topic can be read without querying all nodes: code that writes the hot table also
# writes the copy (docs/decisions/0053).
known_shards = table(
    "known_shards", column("shard_id", BigInteger), column("topic_id", BigInteger), column("level", Integer)
)
held_claims = table("held_claims", column("subscription_id", BigInteger))

# --- The outbox of applications' transactions ------------------------------------------------------------

# A message (of `topic_id`), or acks or nacks (of `subscription_id`), written by the function write_outbox_message
# or write_outbox_acks in a transaction of an application, `xid`.  The transaction that deletes a row of a message
# also appends the message to the log.  `name`: of the topic or subscription; `wakes`: the first row of its
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

# Messages that could not be published after their transaction had committed, and why; kept for some days.
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

# One row.  Until `awake_until` a broker polls the outbox, and need not be notified.  It has taken all rows up to
# `relayed_to` that were committed then, but of the projects in `behind` only those up to `behind_to`.
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

# --- History ---------------------------------------------------------------------------------------------

# A metric of a topic, a subscription or a project (`resource`: its full name) that had something to record
# (features/history).  `label`: the value of the metric's label; "": it has none.  `used_at`: some time on the last
# two days on which a point of it was written.
history_series = Table(
    "history_series",
    metadata,
    Column("series_id", Integer, Identity(always=True), primary_key=True),
    Column("resource", Text(collation="C"), nullable=False),
    Column("metric", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("used_at", DateTime(timezone=True), nullable=False),
    UniqueConstraint("resource", "metric", "label", name="history_series_resource_metric_label_key"),
    Index("history_series_used_at_idx", "used_at"),
    postgresql_with={"fillfactor": "80"},
)

# What a broker process has recorded of the series of a chunk (128 ids) from `start_time` on, for `resolution`
# seconds; only series with an amount other than 0 are in it.  `writer`: a random number of the process; 0: of all
# processes.  `is_gauge`: amounts are values, else they are what was added to counters.  Rows are inserted and
# deleted, never updated, and fit a page.
history_points = Table(
    "history_points",
    metadata,
    Column("resolution", Integer, nullable=False),
    Column("chunk", Integer, nullable=False),
    Column("start_time", DateTime(timezone=True), nullable=False),
    Column("writer", BigInteger, nullable=False),
    Column("is_gauge", Boolean, nullable=False),
    Column("series_ids", ARRAY(Integer), nullable=False),
    Column("amounts", ARRAY(BigInteger), nullable=False),
    PrimaryKeyConstraint("resolution", "chunk", "start_time", "writer", "is_gauge"),
    Index("history_points_start_time_idx", "resolution", "start_time"),
)
