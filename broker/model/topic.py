"""A topic: the log that publishers append to."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import attrgetter
from typing import Annotated, Any
from zlib import crc32

from broker.model.api_json import JsonName
from broker.model.freeze import Freeze
from broker.model.kept import update_kept
from broker.model.publish_property import PublishProperty
from broker.model.resource_limits import check_labels, check_retention
from broker.model.schema_settings import SchemaSettings, check_settings
from broker.model.topic_extensions import NO_EXTENSIONS, TopicExtensions, check_extensions
from broker.model.transforms import Transforms, check_transforms, is_at_work

DELETED_TOPIC = "_deleted-topic_"  # what a subscription shows once its topic is gone (Google's spec)

# Field mask path -> JSON name, for fields that are stored and given back without effect.
KEPT_FIELDS = {
    "message_storage_policy": "messageStoragePolicy",
    "kms_key_name": "kmsKeyName",
    "ingestion_data_source_settings": "ingestionDataSourceSettings",
}
MUTABLE_FIELDS = {
    "labels",
    "message_retention_duration",
    "schema_settings",
    "message_transforms",
    "extensions",
    *KEPT_FIELDS,
}
IMMUTABLE_FIELDS = {"name", "tags", "state", "satisfies_pzs"}
UNSUPPORTED_FIELDS = {  # refused when set, and why
    "tags": "there is no resource manager to hold tags",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as stored.

    `name` is the full resource name.  `kept` holds the fields that are stored and given back but have no
    effect here (api_spec/support.toml lists them), keyed by their JSON name.  `freeze`: publishes are refused
    (None: they are not); an update leaves it alone.  Ordering keys are in the first `key_shards` of its shards
    (None: in all): a topic that got more later leaves each key where it is (docs/decisions/0051).  `levels`: of the
    shards that are for urgent messages alone (docs/decisions/0052); all else is in the others.
    `publish_properties` is computed once, because each publish reads it; it is empty for a plain topic.
    """

    topic_id: int = 0
    name: str
    shard_ids: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    message_retention: Annotated[timedelta | None, JsonName("messageRetentionDuration")] = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    schema_settings: SchemaSettings | None = None
    transforms: Transforms = ()
    freeze: Freeze | None = None
    extensions: TopicExtensions = NO_EXTENSIONS
    key_shards: int | None = None
    levels: Mapping[int, int] = field(default_factory=dict)
    publish_properties: tuple[PublishProperty, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = tuple(each for each in PublishProperty if self.value_of(each))
        object.__setattr__(self, "publish_properties", found)

    def value_of(self, wanted: PublishProperty) -> object:
        """The value of a property; it is false if the topic does not have the property."""
        return _VALUES[wanted](self)

    @property
    def transforms_messages(self) -> bool:
        """Whether anything is done to them before they are stored."""
        return bool(self.transforms) and is_at_work(self.transforms)

    @property
    def state(self) -> str:
        """google.pubsub.v1.Topic.State: a source of messages is never reached.  "" without one, as of Google."""
        sources = self.kept.get("ingestionDataSourceSettings", {}).keys() - {"platformLogsSettings"}
        return "INGESTION_RESOURCE_ERROR" if sources else ""

    def shard_of(self, ordering_key: str) -> int:
        """Returns the shard of all messages of an ordering key; the first shard for "", no key."""
        shard_ids = self.plain_shard_ids
        return shard_ids[crc32(ordering_key.encode()) % (self.key_shards or len(shard_ids))]

    @property
    def plain_shard_ids(self) -> tuple[int, ...]:
        """The ids of the shards for messages that are not urgent, in ascending order."""
        if not self.levels:
            return self.shard_ids
        return tuple(shard_id for shard_id in self.shard_ids if shard_id not in self.levels)

    def urgent_shard(self, level: int | None) -> int | None:
        """The shard of a level; None: it has none of its own, as the least urgent one."""
        known = self.extensions.priorities
        if level is None or known is None or level >= known.least:
            return None
        return next((shard_id for shard_id, of_shard in self.levels.items() if of_shard == level), None)

    def updated(self, wanted: "Topic", fields: Collection[str]) -> "Topic":
        """Returns this topic with the given fields of `wanted`, as a mask names them.

        A field that is absent there is cleared.
        """
        return replace(
            self,
            labels=wanted.labels if "labels" in fields else self.labels,
            message_retention=(
                wanted.message_retention if "message_retention_duration" in fields else self.message_retention
            ),
            schema_settings=wanted.schema_settings if "schema_settings" in fields else self.schema_settings,
            transforms=wanted.transforms if "message_transforms" in fields else self.transforms,
            extensions=wanted.extensions if "extensions" in fields else self.extensions,
            kept=update_kept(self.kept, wanted.kept, fields, KEPT_FIELDS),
        )


_VALUES: Mapping[PublishProperty, Callable[[Topic], object]] = {
    PublishProperty.DEDUPLICATION: attrgetter("extensions.deduplication"),
    PublishProperty.TRANSFORMS: lambda topic: topic.transforms if topic.transforms_messages else (),
    PublishProperty.SCHEMA: attrgetter("schema_settings"),
    PublishProperty.DELAY: attrgetter("extensions.delay"),
    PublishProperty.EXPIRY: attrgetter("extensions.expiry"),
    PublishProperty.PRIORITY: attrgetter("extensions.priorities"),
}


def check_topic(topic: Topic) -> None:
    """Raises InvalidArgument for values out of Google's limits."""
    check_labels(topic.labels)
    if topic.message_retention is not None:
        check_retention(topic.message_retention)
    if topic.schema_settings is not None:
        check_settings(topic.schema_settings)
    check_transforms(topic.transforms)
    check_extensions(topic.extensions)
