"""The extensions of a topic beyond Google's topics.  Each is enabled separately; all are disabled by default."""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace

from broker.model.deduplication import Deduplication
from broker.model.errors import InvalidArgument
from broker.model.priorities import Priorities, check_priorities

MAX_SHARDS = 256  # as of the setting shards_per_topic


@dataclass(frozen=True, slots=True)
class TopicExtensions:
    """`delay`: publishers may have messages delivered later (delay.py); `deduplication`: repeats are not stored;
    `priorities`: what is urgent goes first (priority.py);
    `expiry`: publishers may say for how long messages are delivered (features/expiry/expiry.py).

    `shards`: how many logs the topic has beyond one; None: one, or, as a wish, as many as it has already.
    """

    delay: bool = False
    shards: int | None = None
    deduplication: Deduplication | None = None
    priorities: Priorities | None = None
    expiry: bool = False

    def with_those(self, names: Collection[str], wanted: "TopicExtensions") -> "TopicExtensions":
        """Returns the extensions with the fields of these names as in `wanted`."""
        return replace(self, **{name: getattr(wanted, name) for name in names})


NAMES = tuple(field.name for field in fields(TopicExtensions))
NO_EXTENSIONS = TopicExtensions()


def check_extensions(extensions: TopicExtensions) -> None:
    """Raises InvalidArgument for a value that none can have."""
    if extensions.shards is not None and not 1 <= extensions.shards <= MAX_SHARDS:
        raise InvalidArgument(
            f"Invalid value at 'extensions.shards': {extensions.shards} is not a whole number from 1 to "
            f"{MAX_SHARDS}."
        )
    if extensions.priorities is not None:
        check_priorities(extensions.priorities)
