"""Pages and groups of the dead letters of a subscription (G2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from broker.model.dead_letter import SOURCE_MESSAGE_ID
from broker.model.errors import InvalidArgument
from broker.model.message_id import message_id
from broker.model.message_preview import WHOLE
from broker.model.page import check_page_size, parse_page_token
from broker.model.refusals import refuse_nul

MAX_DEAD_LETTERS = 10_000  # dead letters that one call reads
MAX_GROUPS = 1_000  # groups that one call returns
_PUSH = "push "

By = Literal["reason", "status", "hour", "attribute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter: its source message (`shard_id`, `seq`) and its position in the dead-letter topic.

    `subscriptions`: those of the dead-letter topic that have neither acknowledged it nor let it expire.  `data`:
    the part of the data that was read (None: nothing).  `data_size`: the size of all data in bytes.
    """

    shard_id: int
    seq: int
    source_publish_time: datetime
    dead_letter_shard: int
    dead_letter_seq: int
    publish_time: datetime
    delivery_attempts: int
    reason: str
    ordering_key: str | None
    attributes: Mapping[str, str]
    attributes_text: str = "{}"
    data: bytes | None = None
    data_size: int = 0
    topic: str = ""
    subscriptions: Sequence[str] = ()

    @property
    def source_message_id(self) -> str:
        """Returns the id of the source message.

        The dead letter says it if the id is not made of the message's position, as for a message that was delayed.
        """
        return self.attributes.get(SOURCE_MESSAGE_ID) or message_id(self.shard_id, self.seq)

    @property
    def status(self) -> str:
        """Returns the status that the endpoint answered with, "" if the message was not pushed."""
        return self.reason.removeprefix(_PUSH) if self.reason.startswith(_PUSH) else ""

    @property
    def hour(self) -> str:
        """Returns the hour in which the message was dead-lettered, such as 2026-11-23T08."""
        return self.publish_time.astimezone(UTC).strftime("%Y-%m-%dT%H")


@dataclass(frozen=True, slots=True)
class Trait:
    """A property by which dead letters are grouped or chosen.  `attribute`: the name, if that is an attribute."""

    by: By
    attribute: str = ""

    def of(self, dead_letter: DeadLetter) -> str:
        """Returns the value for a dead letter, "" if it has none."""
        match self.by:
            case "reason":
                return dead_letter.reason
            case "status":
                return dead_letter.status
            case "hour":
                return dead_letter.hour
            case "attribute":
                return dead_letter.attributes.get(self.attribute, "")


@dataclass(frozen=True, slots=True)
class DeadLetterPosition:
    """The message at which a page begins."""

    shard_id: int
    seq: int


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Options of a page of dead letters.

    `size`: the maximum number.  `chosen`: the values that traits must have.  `filter`: a filter of messages ("":
    all).  `start`: where the page begins (None: at the first message).  `preview_bytes`: the number of bytes of
    each message's data that are shown.
    """

    size: int
    chosen: Mapping[Trait, str] = field(default_factory=dict)
    filter: str = ""
    start: DeadLetterPosition | None = None
    preview_bytes: int = WHOLE

    def takes(self, dead_letter: DeadLetter) -> bool:
        return all(trait.of(dead_letter) == value for trait, value in self.chosen.items())


@dataclass(frozen=True, slots=True)
class DeadLetterList:
    """A page of dead letters.

    `scanned`: the number of dead letters that were read.  `resolved`: how many of these cannot be acted on.
    `rest`: where the next page begins (None: there is none).
    """

    found: Sequence[DeadLetter]
    scanned: int
    resolved: int
    rest: DeadLetterPosition | None


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters with the same value of a trait.  `first`: the one whose source message has the
    lowest position.
    """

    key: str
    count: int
    oldest: datetime
    newest: datetime
    first: DeadLetter


def grouped(dead_letters: Sequence[DeadLetter], trait: Trait) -> list[Group]:
    """Groups dead letters by a trait.  Returns the largest group first."""
    by_key: dict[str, list[DeadLetter]] = {}
    for dead_letter in dead_letters:
        by_key.setdefault(trait.of(dead_letter), []).append(dead_letter)
    groups = [
        Group(key, len(of), min(x.publish_time for x in of), max(x.publish_time for x in of), of[0])
        for key, of in by_key.items()
    ]
    return sorted(groups, key=lambda group: (-group.count, group.key))


def parse_trait(text: str) -> Trait:
    """Returns the trait of a name.  Raises InvalidArgument for others than reason, status, hour and
    attribute:NAME.
    """
    name, colon, attribute = text.partition(":")
    if name in ("reason", "status", "hour") and not colon:
        return Trait(name)  # type: ignore[arg-type]
    if name == "attribute" and attribute:
        refuse_nul(attribute, "groupBy")
        return Trait("attribute", attribute)
    raise InvalidArgument(f"groupBy must be reason, status, hour or attribute:NAME (groupBy={text[:100]}).")


def parse_dead_letter_page(
    size: int, token: str, *, chosen: Mapping[Trait, str], filter_text: str, preview_bytes: int = WHOLE
) -> DeadLetterPage:
    """Returns the options of a page.  Raises InvalidArgument for a negative size or a token of another list."""
    size = check_page_size(size)
    start = DeadLetterPosition(*parse_page_token(token, int, int)) if token else None
    return DeadLetterPage(size, chosen, filter_text, start, preview_bytes)
