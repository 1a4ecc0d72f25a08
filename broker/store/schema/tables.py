"""The schema, as SQLAlchemy Core metadata.

It must equal what the migrations build (tests/migrations); partitions of `message_batches` come and go and are not
part of it.  Every hot table (the lower half) is keyed by shard_id first: a shard is the unit of order, of
locking and of distribution.
"""

from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    Interval,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import BIT, INT8MULTIRANGE, JSONB
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import UserDefinedType

metadata = MetaData()

# What the migrations make beside the tables: it moves with them (store/schema/schema_move.py).
VIEWS = ("messages", "straggler_messages", "known_shards", "held_claims")
FUNCTIONS = (
    *("nth_sequence", "unsettled", "body_matches", "message_matches"),
    *("application_role", "check_staged_message", "check_staged_delay", "check_staged_bounds", "is_first_staged"),
    *("check_staged_wishes", "stage_message", "stage_acks", "wake_relay", "tell_brokers"),
    *("try_lock", "lock_name"),
)


class JsonPath(UserDefinedType[str]):
    """jsonpath, written and read as text."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSONPATH"


_NO_LABELS = text("'{}'::jsonb")

topics = Table(
    "topics",
    metadata,
    Column("topic_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text(collation="C"), nullable=False, unique=True),
    Column("labels", JSONB, nullable=False, server_default=_NO_LABELS),
    Column("message_retention", Interval),
    Column("kept", JSONB, nullable=False, server_default=_NO_LABELS),
    Column("created_at", DateTime(timezone=True), nullable=False),
    # Null: messages are checked against no schema.  One that is gone is in no row of `payload_schemas`.
    Column("schema_id", BigInteger),
    Column("schema_encoding", Text),
    Column("first_revision_id", Text),
    Column("last_revision_id", Text),
    # Why publishes are refused (domain/freeze.py); null: they are not.
    Column("frozen", JSONB(none_as_null=True)),
    # JSON, null for none; text, since the order of what is in it is nobody's to change
    Column("message_transforms", Text),
    # Publishers may have messages delivered later (domain/delay.py).
    Column("delay", Boolean, nullable=False, server_default=text("false")),
    # Ordering keys are in so many of its shards, the first ones; null: in all (docs/decisions/0051).
    Column("key_shards", Integer),
    # For so long repeats are known (domain/deduplication.py), also by content; null: nothing is one.
    Column("dedup_window", Interval),
    Column("dedup_content", Boolean, nullable=False, server_default=text("false")),
    # So many levels of urgency (domain/priority.py); null: there are none.
    Column("priorities", Integer),
    Column("priority_age", Interval),
    Column("priority_weights", ARRAY(Integer)),
    # Publishers may say for how long messages are delivered (domain/expiry.py).
    Column("expiry", Boolean, nullable=False, server_default=text("false")),
    # Of `message_retention`, if it has nanoseconds (store/resources/exact_durations.py).
    Column("exact_durations", JSONB(none_as_null=True)),
)

# A subscription was last used at about `last_active_at`.  Shortly before it expires it is watched, last at
# `idle_watched_at`, for `idle_watched` in all (domain/expiration.py).
subscriptions = Table(
    "subscriptions",
    metadata,
    Column("subscription_id", BigInteger, Identity(always=True), primary_key=True),
    Column("name", Text(collation="C"), nullable=False, unique=True),
    Column("topic", Text, nullable=False),
    Column("topic_id", BigInteger, nullable=False, index=True),
    Column("ack_deadline_seconds", Integer, nullable=False),
    Column("retain_acked_messages", Boolean, nullable=False),
    Column("message_retention", Interval, nullable=False),
    Column("labels", JSONB, nullable=False, server_default=_NO_LABELS),
    Column("enable_message_ordering", Boolean, nullable=False),
    Column("extensions", JSONB, nullable=False, server_default=_NO_LABELS),
    Column("enable_exactly_once_delivery", Boolean, nullable=False),
    Column("expiration_ttl", Interval),
    Column("filter", Text, nullable=False, server_default=text("''")),
    Column("filter_path", JsonPath),
    Column("dead_letter_topic", Text),
    Column("max_delivery_attempts", Integer),
    Column("minimum_backoff", Interval),
    Column("maximum_backoff", Interval),
    Column("detached", Boolean, nullable=False),
    Column("push_config", JSONB, nullable=False, server_default=_NO_LABELS),
    Column("kept", JSONB, nullable=False, server_default=_NO_LABELS),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("last_active_at", DateTime(timezone=True), nullable=False),
    Column("idle_watched", Interval, nullable=False, server_default=text("'00:00:00'::interval")),
    Column("idle_watched_at", DateTime(timezone=True)),
    Column("message_transforms", Text),  # as of topics
    # Null: attributes alone decide.  Else `filter_path` is true wherever the filter may be (filtering/jsonpath.py).
    Column("body_path", JsonPath),
    # Null: since it was made, as far as is known, messages are pushed where they are now, or pulled.
    Column("endpoint_set_at", DateTime(timezone=True)),
    Column("dead_letter_expired", Boolean, nullable=False, server_default=text("false")),
    Column("push_urgent", Boolean, nullable=False, server_default=text("false")),
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
        postgresql_where=text("push_config ? 'endpoint' AND NOT detached"),
    ),
    # Once a second those with a dead-letter topic are looked at.
    Index(
        "subscriptions_dead_letter_idx", "subscription_id", postgresql_where=text("dead_letter_topic IS NOT NULL")
    ),
    # Once a minute those with webhook secrets are.
    Index(
        "subscriptions_secrets_idx",
        "subscription_id",
        postgresql_where=text("extensions -> 'push' ? 'webhook_secrets'"),
    ),
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

# The broker processes that run: each push subscription is delivered by one of them.  `version` is the newest schema
# that a process knows; those that do not say cannot read encrypted secrets.  `connections`: how many those
# projects have to it whose connections are limited.
processes = Table(
    "processes",
    metadata,
    Column("process_id", Text, primary_key=True),
    Column("seen_at", DateTime(timezone=True), nullable=False),
    Column("version", Text),
    Column("connections", JSONB(none_as_null=True)),
    Column("database_connections", Integer),  # at the most; null: a process of an older broker
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

# --- hot tables ---------------------------------------------------------------------------------------

# A topic's logs.  `head` is the last sequence given out; taking more holds the row until commit, so the order
# of sequences is the order of commits, and dense.  `last_publish_time` never goes back within a shard.
# While a topic is frozen `frozen_at` is its head: no broker, of whatever version, can take more.
# `last_id_seq` is the last number given to a message that waits for its time (domain/message_id.py).
# `last_flush` is a number of the last flush that gave something out on a condition: its other statements see by it
# whether it did (store/log/identities.py).  `level`: what is in it is urgent, 0 the most; null: it is not.
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
    them before (schedule_tables.py).  From `expires_at` on (null: never) none is delivered.  The views `messages`
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

# A subscription's position in one shard: all before (next_publish_time, next_seq) has been claimed.  Its row lock
# is the claim lock.  Nothing is due before `due_floor`, or claimed while it is `paused`; nothing before `first_seq`
# was ever the subscription's (none: it is older than this column).  `due_first`: whose turn it is, of redeliveries
# and fresh messages (domain/due_share.py).  `filter_changed_at`: no claim may use a filter that was read earlier
# (docs/decisions/0077); a cursor made after the change needs none, for who has not heard of it knows no such shard.
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

# From when on each dead letter has a row of `dead_letters`: one row.
letters_recorded = Table("letters_recorded", metadata, Column("since", DateTime(timezone=True), primary_key=True))

# Messages that are out: one row per response, a bit of `open` per sequence of `seqs`, in order.
# `acked` is kept for exactly-once subscriptions only: a bit for each that was acked under this attempt.
#
# A row with an ordering key is that key's: as long as it is there, other messages of the key wait (A6).  Of its
# sequences the first `out_count` are out under the attempt id, the others came back with them and wait, each with
# its attempt number so far; `retry_at` is when the first of those may go out.  `waiting` are the sequences in which
# further messages of the key wait, as far as the cursor has come.
#
# `failure` is how the attempt has failed, once it has (domain/dead_letter.py).  `redriven` (null: not so): messages
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
