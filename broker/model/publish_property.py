"""The properties of topics that change what a publish does."""

from enum import StrEnum


class PublishProperty(StrEnum):
    """A property of a topic that changes what messages must satisfy, or how they are stored.

    The values are fields of `Rules` (core/publishing/publishing_rules.py).  The order is that in which a publish
    is checked, and so decides which of several errors its caller gets.
    """

    DEDUPLICATION = "deduplication"  # before the transforms: a message is identified as it was sent
    TRANSFORMS = "transforms"
    SCHEMA = "schema"
    DELAY = "delay"
    EXPIRY = "expiry"
    PRIORITY = "priority"

    @property
    def path(self) -> str:
        """The field of a topic in the API, for errors."""
        return _PATHS[self]


_PATHS = {
    PublishProperty.DEDUPLICATION: "extensions.deduplication",
    PublishProperty.TRANSFORMS: "messageTransforms",
    PublishProperty.SCHEMA: "schemaSettings",
    PublishProperty.DELAY: "extensions.delay",
    PublishProperty.EXPIRY: "extensions.expiry",
    PublishProperty.PRIORITY: "extensions.priorities",
}
