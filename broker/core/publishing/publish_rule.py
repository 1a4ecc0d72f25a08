"""The interface through which a feature takes part in a publish.

A feature registers one `PublishRule` for the property of topics that it implements.  The rule runs for topics that
have the property, at the entry points where the property applies (core/publishing/publishing_rules.py).  It refuses
messages, or changes how they are stored.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from broker.core.log.packing import Packing
from broker.core.publishing.publishing_rules import Rule, Rules
from broker.model.message import NewMessage
from broker.model.publish_property import PublishProperty
from broker.model.topic import Topic


@dataclass(slots=True, kw_only=True)
class Draft:
    """Messages that are being prepared: as they were sent, and as they will be stored.

    `rules`: those of the entry point.  `seconds`: the time that checks of all messages may take.  `shards`: the
    shard of each message that has to be in a certain one (None: its ordering key decides).  `reservations` run
    before the messages are appended, if the entry point can still refuse them.
    """

    topic: Topic
    sent: Sequence[NewMessage]
    rules: Rules
    seconds: float
    packing: Packing
    shards: list[int | None] = field(default_factory=list)
    reservations: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    def put_in(self, shards: Sequence[int | None]) -> None:
        """Choose the shards of messages; None leaves the choice of an earlier rule."""
        if not self.shards:
            self.shards = [None] * len(self.sent)
        for index, shard_id in enumerate(shards):
            if shard_id is not None:
                self.shards[index] = shard_id


@dataclass(frozen=True, slots=True)
class PublishRule:
    """The change or check of messages by a feature, for topics with its property.

    `apply` gets the treatment of the property at the entry point, which is neither IGNORED nor REFUSES.  It raises
    InvalidArgument for a message that breaks the rule, NotFound, ResourceExhausted, Unavailable.
    """

    of: PublishProperty
    apply: Callable[[Draft, Rule], Awaitable[None]]
