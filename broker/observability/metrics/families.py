"""The metrics of the broker, under Google's names where Google has one (docs/metrics.md describes each)."""

from typing import Final

from broker.observability.metrics.layout import MICROSECONDS, Layout

_SECONDS = [
    *(500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 10_000_000, 60_000_000, 600_000_000),
]
_BYTES = [64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 10_485_760]
_MESSAGES = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000]

CODES: Final = (  # google.rpc.Code, those that a publish is answered with
    *("OK", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "ABORTED", "RESOURCE_EXHAUSTED"),
    *("UNAVAILABLE", "INTERNAL"),
)
RESPONSE_CLASSES: Final = (  # of Google's subscription/push_request_count
    *("ack", "deadline_exceeded", "internal", "invalid"),
    *("remote_server_4xx", "remote_server_5xx", "unreachable"),
)

TOPIC: Final = Layout()
PUBLISH_REQUESTS: Final = TOPIC.counters(
    "pubsub_topic_publish_requests", "Publish requests, by how they were answered.", "code", CODES
)
PUBLISHED_MESSAGES: Final = TOPIC.counter("pubsub_topic_published_messages", "Messages stored by publish requests.")
PUBLISHED_BYTES: Final = TOPIC.counter(
    "pubsub_topic_published_bytes", "Bytes of data and attributes of the messages stored by publish requests."
)
COPIED: Final = TOPIC.counter(
    "pubsub_topic_copied_messages", "Messages stored by copies from other topics, which are no publish requests."
)
IMPORTED: Final = TOPIC.counter(
    "pubsub_topic_imported_messages", "Messages stored by imports, which are no publish requests; each once."
)
RETRACTED: Final = TOPIC.counter(
    "pubsub_topic_retracted_messages", "Messages that were retracted: they are not handed out any more."
)
TOPIC_TRANSFORM_FAILURES: Final = TOPIC.counter(
    "pubsub_topic_transform_failures", "Messages of publish requests that a transform of the topic failed for."
)
TOPIC_TRANSFORM_DROPS: Final = TOPIC.counter(
    "pubsub_topic_transform_drops", "Messages that a transform of the topic dropped: they are not stored."
)
REPEATED_MESSAGES: Final = TOPIC.counter(
    "pubsub_topic_repeated_messages",
    "Messages that were repeats: they are not stored, and have the first one's id.",
)
MESSAGE_SIZES: Final = TOPIC.histogram(
    "pubsub_topic_message_size_bytes", "Size of each published message, data and attributes.", _BYTES
)

SUBSCRIPTION: Final = Layout()
SENT: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_sent_messages", "Messages handed out, by pull, stream or push, each time that they were."
)
ACKED: Final = SUBSCRIPTION.counter("pubsub_subscription_ack_messages", "Messages acknowledged, durably.")
NACKED: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_nack_messages", "Messages given back for redelivery, or rejected."
)
EXPIRED: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_expired_ack_deadlines",
    "Messages whose ack deadline passed without an answer, counted when they are taken up again.",
)
EXPIRED_MESSAGES: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_expired_messages",
    "Messages that are not handed out any more, for their time to live is over.",
)
DEAD_LETTERED: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_dead_letter_messages", "Messages moved to the dead-letter topic."
)
LOST_DEAD_LETTERS: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_lost_dead_letter_messages",
    "Dead letters of the subscription that are gone though nobody had dealt with them.",
)
REDRIVEN: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_redriven_messages", "Messages that came back from a dead-letter topic."
)
DEAD_LETTERS_SENT: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_sent_dead_letter_messages", "Messages that were given up, and sent to another topic."
)
RESENT: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_resent_messages", "Messages that were resent to the subscription."
)
DISCARDED: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_discarded_messages", "Messages and dead letters that an operator has discarded."
)
TRANSFORM_FAILURES: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_transform_failures", "Messages that a transform failed for, each a nack."
)
TRANSFORM_DROPS: Final = SUBSCRIPTION.counter(
    "pubsub_subscription_transform_drops", "Messages that a transform dropped, each acknowledged."
)
ACK_LATENCY: Final = SUBSCRIPTION.histogram(
    "pubsub_subscription_ack_latency_seconds",
    "Time from when a message was handed out to its acknowledgement.",
    _SECONDS,
    scale=MICROSECONDS,
)
DELIVERY_LAG: Final = SUBSCRIPTION.histogram(
    "pubsub_delivery_lag_seconds",
    "Time from the publish of the oldest message of a response to its first hand-out, for each response.",
    _SECONDS,
    scale=MICROSECONDS,
)
PUSH_REQUESTS: Final = SUBSCRIPTION.counters(
    "pubsub_subscription_push_requests",
    "Pushes that have ended, by how; a digest is one.",
    "response_class",
    RESPONSE_CLASSES,
)
PUSH_LATENCY: Final = SUBSCRIPTION.histogram(
    "pubsub_subscription_push_latency_seconds",
    "Time that an endpoint took to answer a push.",
    _SECONDS,
    scale=MICROSECONDS,
)
OPEN_STREAMS: Final = SUBSCRIPTION.gauge(
    "pubsub_subscription_open_streaming_pulls", "StreamingPull streams that are open."
)

TURN_KINDS: Final = ("ack", "claim", "look", "publish", "push", "resource", "schedule", "schema")
PROJECT: Final = Layout()
TURNS: Final = PROJECT.counters(
    "pubsub_turns", "Turns that a project has had at what a process shares between projects.", "kind", TURN_KINDS
)
TURN_WAITS: Final = PROJECT.counters(
    "pubsub_turn_wait_seconds",
    "Time that a project has waited for its turns, added up.",
    "kind",
    TURN_KINDS,
    scale=MICROSECONDS,
)
TURN_HELD: Final = PROJECT.counters(
    "pubsub_turn_held_seconds",
    "Time for which a project has had its turns, added up.",
    "kind",
    TURN_KINDS,
    scale=MICROSECONDS,
)

PROCESS: Final = Layout()
SEQUENCING: Final = PROCESS.histogram(
    "pubsub_sequencing_seconds",
    "Time from the arrival of a publish to its durable place in the log.",
    _SECONDS,
    scale=MICROSECONDS,
)
COMMIT_MESSAGES: Final = PROCESS.histogram(
    "broker_publish_commit_messages", "Messages that one commit of publishes stored.", _MESSAGES
)
LOOP_DELAY: Final = PROCESS.histogram(
    "broker_event_loop_delay_seconds",
    "How late a timer of a worker process was; each looks twice a second.",
    _SECONDS,
    scale=MICROSECONDS,
)
FAN_OUT_WIDTH: Final = PROCESS.histogram(
    "broker_fan_out_width_subscriptions",
    "Subscriptions that one claim handed messages out to, of claims that did.",
    _MESSAGES,
)
FAN_OUT_DEPTH: Final = PROCESS.histogram(
    "broker_fan_out_depth_messages",
    "Messages that one claim handed out, for each subscription again, of claims that did.",
    _MESSAGES,
)
CACHE_READS: Final = PROCESS.counters(
    "broker_resource_cache_lookups",
    "Look-ups of topics and subscriptions: in memory (hit), or in the database (miss).",
    "result",
    ("hit", "miss"),
)
CONNECTION_WAITS: Final = PROCESS.histogram(
    "broker_database_connection_wait_seconds",
    "Time that a hot statement waited for a connection, of those that had to wait.",
    _SECONDS,
    scale=MICROSECONDS,
)
ROUND_TRIPS: Final = PROCESS.histogram(
    "broker_database_round_trip_seconds",
    "Time of a round trip of hot statements to the database and back.",
    _SECONDS,
    scale=MICROSECONDS,
)
INSPECTION_READS: Final = PROCESS.counters(
    "broker_looks",
    "Reads of calls that look, and of scrapes, where there is a replica, by who answered.",
    "by",
    ("primary", "replica"),
)

TRANSFORM_SECONDS: Final = PROCESS.histogram(
    "broker_transform_seconds",
    "Time that a sandbox took for what it was given at once: up to a thousand messages of a topic or subscription.",
    _SECONDS,
    scale=MICROSECONDS,
)
SANDBOX_DEATHS: Final = PROCESS.counter(
    "broker_transform_sandbox_deaths", "Sandboxes that ended, or were ended, while they transformed messages."
)
RECORDS_DROPPED: Final = PROCESS.counter(
    "broker_delivery_records_dropped",
    "Acknowledged messages without a record of their delivery, because the database did not take it in time.",
)
LATENESS: Final = PROCESS.histogram(
    "pubsub_scheduled_message_lateness_seconds",
    "Time from when a delayed message was due until it was published, by this process.",
    _SECONDS,
    scale=MICROSECONDS,
)
TICKS: Final = PROCESS.counters(
    "pubsub_schedule_ticks",
    "Ticks of schedules, by what became of them; of those that were missed one for all.",
    "outcome",
    ("published", "dropped", "refused", "missed"),
)
TICK_LATENESS: Final = PROCESS.histogram(
    "pubsub_schedule_tick_lateness_seconds",
    "Time from when a tick of a schedule was due until its message was published, by this process.",
    _SECONDS,
    scale=MICROSECONDS,
)
OUTBOX_DONE: Final = PROCESS.counters(
    "pubsub_relayed",
    "What applications staged in their own transactions, and this process has published or acknowledged.",
    "kind",
    ("message", "ack", "nack"),
)
OUTBOX_REFUSED: Final = PROCESS.counters(
    "pubsub_staged_refused",
    "Messages of applications' transactions that could not be published, and ack ids that named nothing.",
    "kind",
    ("message", "ack"),
)
OUTBOX_SECONDS: Final = PROCESS.histogram(
    "pubsub_relay_seconds",
    "Time from when a message was staged, in a transaction that was to be committed, until it was published.",
    _SECONDS,
    scale=MICROSECONDS,
)
OPERATION_STEPS: Final = PROCESS.counter(
    "broker_operation_steps", "Steps of operations that this process has done, each a transaction."
)
PURGES: Final = PROCESS.counters("broker_purges", "Purges, by what was purged.", "of", ("subscription", "topic"))
FILTER_CHANGES: Final = PROCESS.counter(
    "broker_filter_changes", "Filters of subscriptions that were changed by setFilter."
)
OPERATIONS_ENDED: Final = PROCESS.counters(
    "broker_operations_ended", "Operations that have ended, by how.", "state", ("succeeded", "failed", "cancelled")
)

LAYOUTS: Final = {"topic": TOPIC, "subscription": SUBSCRIPTION, "project": PROJECT, "process": PROCESS}
