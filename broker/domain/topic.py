"""A topic: the log that publishers append to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

DELETED_TOPIC = "_deleted-topic_"  # what a subscription shows once its topic is gone (Google's spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as stored.

    `name` is the full resource name.  `kept` holds the fields that are stored and given back but have no
    effect here (api_spec/support.toml lists them), keyed by their JSON name.
    """

    topic_id: int
    name: str
    shard_ids: tuple[int, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    message_retention: timedelta | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)
