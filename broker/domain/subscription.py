"""A subscription: a position in a topic's log, and the rules of its deliveries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from broker.domain.retry_policy import RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy:
    """Where a message goes that failed `max_delivery_attempts` times (5 to 100)."""

    dead_letter_topic: str
    max_delivery_attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription as stored.

    `topic` is the topic's full name, or `_deleted-topic_`; `shard_ids` stay known after the topic is deleted,
    so that the backlog can still be pulled.  `expiration_ttl` None means the subscription never expires.
    `push_config` is the JSON form ({} for a pull subscription).  `kept` holds the fields that are stored and
    given back without effect, keyed by their JSON name.
    """

    subscription_id: int
    name: str
    topic: str
    topic_id: int
    shard_ids: tuple[int, ...]
    ack_deadline_seconds: int = 10
    retain_acked_messages: bool = False
    message_retention: timedelta = timedelta(days=7)
    topic_message_retention: timedelta | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    enable_message_ordering: bool = False
    enable_exactly_once_delivery: bool = False
    expiration_ttl: timedelta | None = timedelta(days=31)
    filter: str = ""
    dead_letter_policy: DeadLetterPolicy | None = None
    retry_policy: RetryPolicy | None = None
    detached: bool = False
    push_config: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
