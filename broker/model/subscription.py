"""A subscription: a position in a topic's log, and the rules of its deliveries."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from broker.model.alerts import NO_ALERTS, Alerts, check_alerts
from broker.model.api_json import JsonName
from broker.model.dead_letter import KEPT
from broker.model.durations import format_duration
from broker.model.errors import InvalidArgument
from broker.model.filter_changes import EarlierFilter, NewestFilter, filter_at
from broker.model.journal import Journal, check_journal
from broker.model.kept import check_kept, update_kept
from broker.model.names import check_name, check_shape
from broker.model.pause import Pause, is_of_endpoint
from broker.model.priorities import Priorities
from broker.model.push_config import GOOGLES_OPTIONS, PULL, PushConfig, PushOptions
from broker.model.push_limits import check_push
from broker.model.resource_limits import check_ack_deadline, check_labels, check_retention
from broker.model.retry_policy import RetryPolicy
from broker.model.timestamps import whole_milliseconds
from broker.model.transforms import Transforms, check_transforms, is_at_work

DEFAULT_ACK_DEADLINE_SECONDS = 10
EXACTLY_ONCE_ACK_DEADLINE_SECONDS = 60  # the default with exactly-once delivery
DEFAULT_RETENTION = timedelta(days=7)
DEFAULT_EXPIRATION_TTL = timedelta(days=31)
MAX_BACKOFF = timedelta(seconds=600)
MIN_DELIVERY_ATTEMPTS, DEFAULT_DELIVERY_ATTEMPTS, MAX_DELIVERY_ATTEMPTS = 5, 5, 100  # Google's limits

# Field mask path -> attribute of Subscription.  Paths without one are refused when set: nothing to update.
_ATTRIBUTES = {
    "ack_deadline_seconds": "ack_deadline_seconds",
    "labels": "labels",
    "retain_acked_messages": "retain_acked_messages",
    "message_retention_duration": "message_retention",
    "expiration_policy": "expiration_ttl",
    "retry_policy": "retry_policy",
    "dead_letter_policy": "dead_letter_policy",
    "push_config": "push_config",
    "enable_exactly_once_delivery": "enable_exactly_once_delivery",
    "extensions": "extensions",
    "message_transforms": "transforms",
}
# Field mask path -> JSON name, for fields that are stored and given back without effect: exports to other services.
KEPT_FIELDS = {
    "bigquery_config": "bigqueryConfig",
    "cloud_storage_config": "cloudStorageConfig",
    "bigtable_config": "bigtableConfig",
}
_DESTINATIONS = {"bigqueryConfig": "table", "cloudStorageConfig": "bucket", "bigtableConfig": "table"}
MUTABLE_FIELDS = {*_ATTRIBUTES, *KEPT_FIELDS}
IMMUTABLE_FIELDS = {
    "name",
    "topic",
    "filter",
    "enable_message_ordering",
    "tags",
    "detached",
    "state",
    "topic_message_retention_duration",
    "analytics_hub_subscription_info",
}
UNSUPPORTED_FIELDS = {  # refused when set, and why
    "tags": "there is no resource manager to hold tags",
}

_WHITE_SPACE = " \t\r\n"  # of the filter language


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy:
    """The policy that dead-letters messages which failed `max_delivery_attempts` times.

    They go to `dead_letter_topic`.  The attempts are 5 to 100, or from 1 on where allowed.
    """

    dead_letter_topic: str = ""
    max_delivery_attempts: int = DEFAULT_DELIVERY_ATTEMPTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """Options that Google's subscriptions do not have.

    `one_per_ordering_key`: one message of a key is out at a time, also within a response (A6).  `push`: how a push
    subscription delivers.  `alerts`: when somebody wants to be told of it.  `journal`: what is written
    down of what happens to its messages.  `dead_letter_expired`: what is past its time goes to the dead-letter
    topic, if there is one.
    """

    one_per_ordering_key: bool = False
    dead_letter_expired: bool = False
    push: PushOptions = GOOGLES_OPTIONS
    alerts: Alerts = NO_ALERTS
    journal: Journal | None = None

    def with_those(self, names: Collection[str], wanted: "Extensions") -> "Extensions":
        """Returns the extensions with the fields of these names as in `wanted`."""
        return replace(self, **{name: getattr(wanted, name) for name in names})

    def replaced_by(self, wanted: "Extensions") -> "Extensions":
        """`wanted`, but with the secrets that there are unless it says which: who read them could not send them."""
        secrets = wanted.push.webhook_secrets
        if secrets is None:
            secrets = self.push.webhook_secrets
        push = replace(wanted.push, webhook_secrets=secrets or None, webhook_secret_fingerprints=())
        return replace(wanted, push=push)


EXTENSION_NAMES = tuple(each.name for each in fields(Extensions))
NO_EXTENSIONS = Extensions()


def unread_dead_letters(subscription: "Subscription") -> str:
    """Returns a warning that nobody subscribes to the dead-letter topic of a subscription.

    "": there is a subscription to it, or no such topic.
    """
    if subscription.dead_letter_policy is None or not subscription.dead_letters_unread:
        return ""
    topic = subscription.dead_letter_policy.dead_letter_topic
    return (
        f"its dead-letter topic {topic} has no subscription; dead letters are kept for {KEPT.days} days, or as "
        "long as the topic retains messages, and are lost then"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription as stored.

    `topic` is the topic's full name, or `_deleted-topic_`; `shard_ids` stay known after the topic is deleted, so
    that the backlog can still be pulled; `levels`: how urgent those are that have urgent messages, and
    `priorities`: what that means, are the topic's.
    `expiration_ttl` None means the subscription never expires.
    `filter_path` and `body_path` are the filter, compiled (core/filtering/jsonpath.py).  If it was changed they are
    what `earlier_filters` and `filter` say together, and `newest_filter` is what `filter` says alone (None:
    nothing else decides about any message that there is); `filter_changed_at`: since when it does.
    `dead_letter_topic_id` is 0 while there is no topic of the policy's name: messages are then retried without
    end rather than lost; `dead_letters_unread`: there is one, and nobody subscribes to it.  `pause`: nothing is
    handed out (None: it is not paused); an update leaves it alone.  `kept` holds fields that are stored and
    given back without effect, keyed by their JSON name.
    """

    subscription_id: int = 0
    name: str
    topic: str
    topic_id: int = 0
    shard_ids: tuple[int, ...] = ()
    levels: Mapping[int, int] = field(default_factory=dict)
    priorities: Priorities | None = None
    ack_deadline_seconds: int = DEFAULT_ACK_DEADLINE_SECONDS
    retain_acked_messages: bool = False
    message_retention: Annotated[timedelta, JsonName("messageRetentionDuration")] = DEFAULT_RETENTION
    topic_message_retention: Annotated[timedelta | None, JsonName("topicMessageRetentionDuration")] = None
    labels: Mapping[str, str] = field(default_factory=dict)
    enable_message_ordering: bool = False
    extensions: Extensions = Extensions()
    enable_exactly_once_delivery: bool = False
    expiration_ttl: timedelta | None = DEFAULT_EXPIRATION_TTL
    filter: str = ""
    filter_path: str | None = None
    body_path: str | None = None
    earlier_filters: tuple[EarlierFilter, ...] = ()
    newest_filter: NewestFilter | None = None
    filter_changed_at: datetime | None = None
    dead_letter_policy: DeadLetterPolicy | None = None
    dead_letter_topic_id: int = 0
    dead_letters_unread: bool = False
    retry_policy: RetryPolicy | None = None
    detached: bool = False
    push_config: PushConfig = PULL
    pause: Pause | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    transforms: Transforms = ()

    @property
    def transforms_messages(self) -> bool:
        """Whether messages are transformed before they are delivered."""
        return bool(self.transforms) and is_at_work(self.transforms)

    @property
    def max_delivery_attempts(self) -> int | None:
        """The number of times that a message is delivered before it is dead-lettered; None: there is no limit."""
        if self.dead_letter_policy is None or not self.dead_letter_topic_id:
            return None
        return self.dead_letter_policy.max_delivery_attempts

    @property
    def gives_up_expired(self) -> bool:
        """Whether what is past its time goes to the dead-letter topic; without one it is passed."""
        return self.extensions.dead_letter_expired and self.max_delivery_attempts is not None

    @property
    def shows_delivery_attempts(self) -> bool:
        """Whether receivers get the number of delivery attempts.

        They do with a dead-letter policy, also while its topic does not exist
        (google.pubsub.v1.ReceivedMessage.delivery_attempt).
        """
        return self.dead_letter_policy is not None

    @property
    def journal(self) -> Journal | None:
        """The journal of the subscription; None: it has none."""
        return self.extensions.journal

    @property
    def is_push(self) -> bool:
        """Whether messages are pushed to an endpoint; such a subscription cannot be pulled."""
        return bool(self.push_config.endpoint) and not self.detached

    @property
    def is_urgent(self) -> bool:
        """Whether its messages go before those of the project's others when pushes compete."""
        return self.extensions.push.urgent and self.is_push

    @property
    def export(self) -> str:
        """The JSON name of the config by which messages are for another service; "" if they are not.

        Nothing is exported: they wait for as long as they are retained, and cannot be pulled.
        """
        if self.detached or not self.kept:
            return ""
        return next((name for name in _DESTINATIONS if name in self.kept), "")

    @property
    def state(self) -> Literal["ACTIVE", "RESOURCE_ERROR"]:
        """Google's field: RESOURCE_ERROR says that messages cannot be sent to where they are to go
        (google.pubsub.v1.Subscription.State).  An endpoint that fails and is retried leaves it ACTIVE, and so does
        a pause, unless the broker itself began it because it cannot push there.
        """
        is_refused = self.is_push and self.pause is not None and is_of_endpoint(self.pause.reason)
        return "RESOURCE_ERROR" if self.export or is_refused else "ACTIVE"

    @property
    def newest_paths(self) -> tuple[str | None, str | None]:
        """`filter_path` and `body_path` of what decides about messages that are published now."""
        newest = self.newest_filter
        return (self.filter_path, self.body_path) if newest is None else (newest.filter_path, newest.body_path)

    def filter_of(self, publish_time: datetime) -> str:
        """The filter that decides about a message published at this time."""
        return filter_at(self.filter, self.earlier_filters, publish_time)

    @property
    def retention(self) -> timedelta:
        """Messages older than this are not delivered: the subscription's or the topic's, whichever is longer."""
        return max(self.message_retention, self.topic_message_retention or timedelta(0))

    def replay_since(self, now: datetime) -> datetime | None:
        """Returns how far back acked messages can be sought (A9); None if they are not retained.

        Messages that the subscription itself retains begin with its creation (in milliseconds, as publish times
        are).
        """
        reaches = []
        if self.retain_acked_messages and self.created_at is not None:
            reaches.append(self._own_since(now))
        if self.topic_message_retention is not None:
            reaches.append(now - self.topic_message_retention)
        return min(reaches, default=None)

    def gets_since(self, now: datetime) -> datetime:
        """Messages that were published earlier cannot be delivered, whatever is sought and whatever others keep."""
        own = self._own_since(now)
        return own if self.topic_message_retention is None else min(own, now - self.topic_message_retention)

    def _own_since(self, now: datetime) -> datetime:
        retained = now - self.message_retention
        return retained if self.created_at is None else max(retained, whole_milliseconds(self.created_at))

    def updated(self, wanted: "Subscription", fields: Collection[str]) -> "Subscription":
        """Returns this subscription with the given fields of `wanted`, as a mask names them."""
        attributes = [_ATTRIBUTES[field] for field in fields if field in _ATTRIBUTES]
        changed = {attribute: getattr(wanted, attribute) for attribute in attributes}
        if "extensions" in changed:
            changed["extensions"] = self.extensions.replaced_by(wanted.extensions)
        return replace(self, kept=update_kept(self.kept, wanted.kept, fields, KEPT_FIELDS), **changed)


def wanted_subscription(
    *,
    ack_deadline_seconds: int = 0,
    message_retention: timedelta | None = None,
    expiration_ttl: timedelta | None = DEFAULT_EXPIRATION_TTL,
    enable_exactly_once_delivery: bool = False,
    **given: Any,
) -> Subscription:
    """A subscription as a call wants it, with the defaults that depend on other fields.

    Those are of the ack deadline (if it is 0) and of the retention (None), which is no longer than the subscription
    may live idle.  A filter of nothing but white space is no filter (`filter : [expression]` in the grammar of
    https://google.aip.dev/160).  `given`: Subscription's other attributes.
    """
    default_deadline = (
        EXACTLY_ONCE_ACK_DEADLINE_SECONDS if enable_exactly_once_delivery else DEFAULT_ACK_DEADLINE_SECONDS
    )
    if message_retention is None:
        message_retention = min(DEFAULT_RETENTION, expiration_ttl or DEFAULT_RETENTION)
    if not given.get("filter", "").strip(_WHITE_SPACE):
        given["filter"] = ""
    return Subscription(
        ack_deadline_seconds=ack_deadline_seconds or default_deadline,
        message_retention=message_retention,
        expiration_ttl=expiration_ttl,
        enable_exactly_once_delivery=enable_exactly_once_delivery,
        **given,
    )


def check_new_subscription(subscription: Subscription, *, min_delivery_attempts: int) -> None:
    """Raises InvalidArgument for a topic, a name or values that a new subscription cannot have."""
    check_shape(subscription.topic, "topics")
    check_name(subscription.name, "subscriptions")
    check_subscription(subscription, min_delivery_attempts=min_delivery_attempts)
    if subscription.kept:
        check_kept(subscription.kept)


def check_subscription(subscription: Subscription, *, min_delivery_attempts: int = MIN_DELIVERY_ATTEMPTS) -> None:
    """Raises InvalidArgument for values out of Google's limits.

    `min_delivery_attempts` below Google's 5 is an extension that the operator allows (A5).
    """
    check_labels(subscription.labels)
    if subscription.push_config != PULL or subscription.extensions != NO_EXTENSIONS:
        _check_extensions(subscription)
    if subscription.transforms:
        check_transforms(subscription.transforms)
    if subscription.kept:
        _check_exports(subscription)
    if subscription.expiration_ttl is not None:
        _check_expiration_ttl(subscription.expiration_ttl)  # first: a retention that is not given follows it
    check_retention(subscription.message_retention)
    check_ack_deadline(subscription.ack_deadline_seconds)
    if subscription.expiration_ttl is not None:
        _check_retention_within_ttl(subscription.message_retention, subscription.expiration_ttl)
    if subscription.retry_policy is not None:
        _check_retry_policy(subscription.retry_policy)
    if subscription.dead_letter_policy is not None:
        _check_dead_letter_policy(subscription.dead_letter_policy, min_delivery_attempts)


def _check_extensions(subscription: Subscription) -> None:
    """Raises InvalidArgument for how the subscription is pushed, and for what Google's have not."""
    check_push(
        subscription.push_config,
        subscription.extensions.push,
        exactly_once=subscription.enable_exactly_once_delivery,
        ordered=subscription.enable_message_ordering,
    )
    check_alerts(subscription.extensions.alerts)
    if subscription.extensions.journal is not None:
        check_journal(subscription.extensions.journal)


def _check_exports(subscription: Subscription) -> None:
    """Google's rules: a subscription delivers in one way, and exactly once only by pull."""
    exports = [name for name in _DESTINATIONS if name in subscription.kept]
    ways = [*(["pushConfig.pushEndpoint"] if subscription.push_config.endpoint else []), *exports]
    if len(ways) > 1:
        raise InvalidArgument(
            f"{' and '.join(ways)} cannot be used together: a subscription delivers in one way; give one of them."
        )
    for name in exports:
        if not subscription.kept[name].get(_DESTINATIONS[name]):
            raise InvalidArgument(f"Invalid value at '{name}': it needs a {_DESTINATIONS[name]}.")
        if subscription.enable_exactly_once_delivery:
            raise InvalidArgument(
                f"enableExactlyOnceDelivery cannot be used together with {name}: exactly-once delivery is for pull "
                "subscriptions only."
            )


def _check_expiration_ttl(ttl: timedelta) -> None:
    if ttl < timedelta(days=1):
        raise InvalidArgument(
            f"The value for expiration duration is too small. You passed {format_duration(ttl)} in the request, "
            "but the minimum value is 24h."
        )


def _check_retention_within_ttl(retention: timedelta, ttl: timedelta) -> None:
    if retention > ttl:
        raise InvalidArgument(
            f"The subscription's message retention duration ({retention.total_seconds():.0f} seconds) cannot be "
            f"greater than the TTL in the subscription's expiration policy ({ttl.total_seconds():.0f} seconds), "
            "since messages cannot be retained past subscription expiration."
        )


def _check_dead_letter_policy(policy: DeadLetterPolicy, min_delivery_attempts: int) -> None:
    attempts = policy.max_delivery_attempts
    if attempts < min_delivery_attempts:
        raise InvalidArgument(
            f"The value for max_delivery_attempts is too small. You passed {attempts} in the request, but the "
            f"minimum value is {min_delivery_attempts}."
        )
    if attempts > MAX_DELIVERY_ATTEMPTS:
        raise InvalidArgument(
            f"The value for max_delivery_attempts is too large. You passed {attempts} in the request, but the "
            f"maximum value is {MAX_DELIVERY_ATTEMPTS}."
        )


def _check_retry_policy(policy: RetryPolicy) -> None:
    for name, backoff in (
        ("minimum_backoff", policy.minimum_backoff),
        ("maximum_backoff", policy.maximum_backoff),
    ):
        if not timedelta(0) <= backoff <= MAX_BACKOFF:
            raise InvalidArgument(
                f"The value for {name} is out of bounds. You passed {format_duration(backoff)} in the request, "
                "but the value must be between 0 and 10m."
            )
    if policy.maximum_backoff < policy.minimum_backoff:
        raise InvalidArgument(
            f"The specified maximum_backoff {format_duration(policy.maximum_backoff)} cannot be smaller than "
            f"minimum_backoff {format_duration(policy.minimum_backoff)}."
        )
