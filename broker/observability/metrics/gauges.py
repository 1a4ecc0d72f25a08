"""Gauges of topics and subscriptions, and their exposition."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGauges:
    """Gauges of a subscription: messages that are not acked, `outstanding` of them out; the age of the oldest in
    seconds.

    `breaker`: of its endpoint, 0 closed, 1 half open, 2 open; None, as the next two: it is not pushed.
    `failing`: its endpoint was reported as failing; `failing_messages`: so many messages were.
    """

    undelivered: int
    is_estimated: bool
    backlog_bytes: int
    outstanding: int
    oldest_age: float
    breaker: int | None
    paused: bool = False
    failing: bool | None = None
    failing_messages: int | None = None


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Operations of a project that have not ended; seconds since the last step of the one that waits longest."""

    count: int
    waited: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Bytes that are free and taken, and the limits of these; None: there is no such limit."""

    disk_free: int | None = None
    disk_min_free: int | None = None
    tables: int | None = None
    tables_max: int | None = None
    paused: bool = False


@dataclass(slots=True)
class GaugeValues:
    """Gauges by full names.  `complete`: they could be read; `unread`: so many subscriptions were not, for there
    are more than have series.  `frozen`: topics that take nothing just now; `outbox`: what transactions of
    applications have committed and no relay has taken, the first of it `outbox_age` seconds ago; `scheduled`: what
    waits for its time.  `replica_lag`: seconds that the replica is behind; None: there is none.  `certificate`:
    from when until when that of the port is valid, as Unix times; None: there is none.
    """

    subscriptions: dict[str, SubscriptionGauges] = field(default_factory=dict)
    retained: Mapping[str, int] = field(default_factory=dict)
    frozen: Sequence[str] = ()
    operations: Mapping[str, UnderWay] = field(default_factory=dict)
    unread: int = 0
    outbox: int = 0
    outbox_age: float = 0.0
    scheduled: int = 0
    replica_lag: float | None = None
    replica_in_use: bool = False
    certificate: tuple[float, float] | None = None
    complete: bool = True
    storage: Storage = field(default_factory=Storage)


_OF_SUBSCRIPTIONS: Sequence[tuple[str, str, Callable[[SubscriptionGauges], float | None]]] = (
    (
        "pubsub_subscription_num_undelivered_messages",
        "Messages that are not acknowledged.",
        lambda subscription_gauges: subscription_gauges.undelivered,
    ),
    (
        "pubsub_subscription_num_undelivered_messages_estimated",
        "1 if the number of undelivered messages is an estimate.",
        lambda subscription_gauges: subscription_gauges.is_estimated,
    ),
    (
        "pubsub_subscription_oldest_unacked_message_age_seconds",
        "Age of the oldest message that is not acknowledged; 0 if there is none.",
        lambda subscription_gauges: subscription_gauges.oldest_age,
    ),
    (
        "pubsub_subscription_num_outstanding_messages",
        "Messages that were handed out and are not acknowledged.",
        lambda subscription_gauges: subscription_gauges.outstanding,
    ),
    (
        "pubsub_subscription_backlog_bytes",
        "Bytes of the messages that are not acknowledged, about.",
        lambda subscription_gauges: subscription_gauges.backlog_bytes,
    ),
    (
        "pubsub_subscription_push_breaker_state",
        "Circuit breaker of the endpoint: 0 closed, 1 half open, 2 open.",
        lambda subscription_gauges: subscription_gauges.breaker,
    ),
    (
        "pubsub_subscription_push_failing",
        "1 while the endpoint is reported as failing.",
        lambda subscription_gauges: subscription_gauges.failing,
    ),
    (
        "pubsub_subscription_push_failing_messages",
        "Messages that are reported as failing while the endpoint accepts others.",
        lambda subscription_gauges: subscription_gauges.failing_messages,
    ),
    (
        "pubsub_subscription_paused",
        "1 while the subscription is paused: nothing of it is handed out.",
        lambda subscription_gauges: subscription_gauges.paused,
    ),
)
RETAINED = ("pubsub_topic_retained_bytes", "Bytes that the log of the topic takes, about.")
FROZEN = ("pubsub_topic_frozen", "1 while the topic is frozen: what is published is refused.")
OPERATIONS = ("broker_operations_running", "Operations of the project that have not ended.")
OPERATION_WAITS = (
    "broker_operation_step_age_seconds",
    "Time since the last step of the project's operation that waits longest.",
)
COMPLETE = ("broker_figures_read", "1 if what waits could be read from the database for this scrape.")
UNREAD = ("broker_figures_unread_subscriptions", "Subscriptions beyond those that have series.")

OUTBOX_ROWS = (
    "pubsub_staged_rows",
    "Messages, and calls with acks, that applications have committed and that wait; up to 10,000.",
)
OUTBOX_AGE = ("pubsub_staged_oldest_seconds", "Age of the oldest of these; 0 if there is none.")
SCHEDULED = ("pubsub_scheduled_messages", "Messages that wait for their time; up to 100,000.")
REPLICA_LAG = ("broker_replica_lag_seconds", "How far the replica is behind the primary, at the most.")
REPLICA_IN_USE = ("broker_replica_in_use", "1 while calls that look read the replica.")
STORAGE_LOW = ("broker_storage_low", "1 while publishing is paused by a storage limit.")
_OF_STORAGE: Sequence[tuple[str, str, Callable[[Storage], int | None]]] = (
    (
        "broker_disk_free_bytes",
        "Free bytes of the file system of the embedded PostgreSQL.",
        lambda storage: storage.disk_free,
    ),
    (
        "broker_disk_free_min_bytes",
        "Publishing is paused while fewer bytes are free there (--disk-free-min).",
        lambda storage: storage.disk_min_free,
    ),
    (
        "broker_database_size_bytes",
        "Bytes of the broker's tables, as they were measured last.",
        lambda storage: storage.tables,
    ),
    (
        "broker_database_size_max_bytes",
        "Publishing is paused while the tables take more bytes (--database-size-max).",
        lambda storage: storage.tables_max,
    ),
)
CERTIFICATE = (
    (
        "broker_tls_certificate_not_before_timestamp_seconds",
        "When the port's certificate begins, as a Unix time.",
    ),
    (
        "broker_tls_certificate_not_after_timestamp_seconds",
        "When the port's certificate expires, as a Unix time.",
    ),
)

Rows = Sequence[tuple[str, float]]


def gauges(gauge_values: GaugeValues) -> Iterator[tuple[str, str, str, Rows]]:
    """Name, help, kind ("" for what is of no resource), and the values by full names."""
    for name, help_, value in _OF_SUBSCRIPTIONS:
        found = (
            (each, value(subscription_gauges)) for each, subscription_gauges in gauge_values.subscriptions.items()
        )
        yield name, help_, "subscription", [(each, shown) for each, shown in found if shown is not None]
    yield *RETAINED, "topic", list(gauge_values.retained.items())
    yield *FROZEN, "topic", [(name, 1.0) for name in gauge_values.frozen]
    yield *OPERATIONS, "project", [(project, each.count) for project, each in gauge_values.operations.items()]
    yield *OPERATION_WAITS, "project", [(project, each.waited) for project, each in gauge_values.operations.items()]
    yield *COMPLETE, "", [("", float(gauge_values.complete))]
    yield *UNREAD, "", [("", float(gauge_values.unread))]
    yield *OUTBOX_ROWS, "", [("", float(gauge_values.outbox))]
    yield *OUTBOX_AGE, "", [("", gauge_values.outbox_age)]
    yield *SCHEDULED, "", [("", float(gauge_values.scheduled))]
    yield *STORAGE_LOW, "", [("", float(gauge_values.storage.paused))]
    for name, help_, size_of in _OF_STORAGE:
        if (size := size_of(gauge_values.storage)) is not None:
            yield name, help_, "", [("", float(size))]
    if gauge_values.replica_lag is not None:
        yield *REPLICA_LAG, "", [("", gauge_values.replica_lag)]
        yield *REPLICA_IN_USE, "", [("", float(gauge_values.replica_in_use))]
    for number, family in enumerate(CERTIFICATE):
        yield *family, "", [("", gauge_values.certificate[number])] if gauge_values.certificate else []
