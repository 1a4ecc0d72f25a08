"""The choice of dead letters for a redrive or a discard, as requested and as stored (G2)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from broker.core.backlog.outcome import Outcome
from broker.model.dead_letter import REASON, SOURCE_MESSAGE_ID
from broker.model.errors import InvalidArgument
from broker.model.message_id import SEQUENCES_PER_SHARD, message_id, parse_message_ids
from broker.model.preview import UNGUARDED, Safeguards
from broker.model.timestamps import EVER

ADDED = (  # attributes that a dead letter has besides those of its message
    "CloudPubSubDeadLetterSourceDeliveryCount",
    "CloudPubSubDeadLetterSourceSubscription",
    "CloudPubSubDeadLetterSourceSubscriptionProject",
    "CloudPubSubDeadLetterSourceTopicPublishTime",
    SOURCE_MESSAGE_ID,
    REASON,
)
MAX_IDS = 1_000
MAX_REASONS = 100
MAX_REASON = 100  # characters

# The outcomes after which the dead letter is deleted.
DONE = frozenset({Outcome.REDRIVEN, Outcome.ALREADY_THERE, Outcome.SENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A choice of dead letters of a subscription.

    `since`, `until`: the time at which they were dead-lettered.  `reasons`: their reasons (none: any).  `ids`:
    shard and sequence of the dead letters or of their source messages (none: any).  `filter_path`, `body_path`: the
    filter that their attributes and data match (None: any).
    """

    subscription_id: int
    since: datetime
    until: datetime
    reasons: Sequence[str] = ()
    ids: Sequence[tuple[int, int]] = ()
    filter_path: str | None = None
    body_path: str | None = None

    @property
    def takes_resolved(self) -> bool:
        """Returns whether acknowledged and discarded dead letters are redriven too, as they are if the caller names
        ids.
        """
        return bool(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions:
    """Options of a redrive.

    `target`: the topic to publish on ("": the messages return to the subscription).  `start_time`, `end_time`: None
    means no bound.  `max_rate`: messages per second (None: no limit).
    """

    target: str = ""
    filter: str = ""
    message_ids: Sequence[str] = ()
    start_time: datetime | None = None
    end_time: datetime | None = None
    reasons: Sequence[str] = ()
    max_rate: float | None = None
    safeguards: Safeguards = UNGUARDED

    def until(self, now: datetime) -> datetime:
        """Returns the end of the choice, at the latest now, so that a redrive does not chase dead letters that it
        causes.
        """
        return min(now, self.end_time or now, self.safeguards.as_of or now)


def check_redrive(request: RedriveOptions) -> None:
    """Raises InvalidArgument for too many or malformed ids or reasons, or a start after the end."""
    if len(request.message_ids) > MAX_IDS:
        raise InvalidArgument(f"messageIds has {len(request.message_ids)} ids, the maximum is {MAX_IDS:,}.")
    if len(request.reasons) > MAX_REASONS:
        raise InvalidArgument(f"reasons has {len(request.reasons)} entries, the maximum is {MAX_REASONS}.")
    parse_message_ids(request.message_ids)
    for index, reason in enumerate(request.reasons):
        if "\0" in reason or len(reason) > MAX_REASON:
            raise InvalidArgument(f"Invalid value at 'reasons[{index}]': {reason[:100]!r} is no reason.")
    if request.start_time and request.end_time and request.start_time > request.end_time:
        raise InvalidArgument(
            f"startTime must not be after endTime (startTime={request.start_time.isoformat()}, "
            f"endTime={request.end_time.isoformat()})."
        )


def chosen_by(
    request: RedriveOptions, *, subscription_id: int, paths: tuple[str | None, str | None], now: datetime
) -> Chosen:
    """Returns the choice that a request makes at the time `now`.

    `paths`: the paths of its filter for attributes and for data.
    """
    return Chosen(
        subscription_id=subscription_id,
        since=max(request.start_time or EVER, EVER),
        until=request.until(now),
        reasons=tuple(request.reasons),
        ids=tuple(parse_message_ids(request.message_ids)),
        filter_path=paths[0],
        body_path=paths[1],
    )


def to_json(chosen: Chosen) -> dict[str, Any]:
    """Returns a choice in the form in which its operation stores it."""
    texts = asdict(chosen) | {"since": chosen.since.isoformat(), "until": chosen.until.isoformat()}
    return texts | {"ids": [message_id(shard_id, seq) for shard_id, seq in chosen.ids]}


def from_json(stored: Mapping[str, Any]) -> Chosen:
    """Returns the choice that an operation has stored."""
    times = {name: datetime.fromisoformat(stored[name]) for name in ("since", "until")}
    ids = tuple(divmod(int(text), SEQUENCES_PER_SHARD) for text in stored["ids"])
    return Chosen(**{**stored, **times, "ids": ids, "reasons": tuple(stored["reasons"])})
