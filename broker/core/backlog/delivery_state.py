"""The delivery state of a message for a subscription: one enum, and one function of the stored values (F3).

All code that reads or changes a backlog uses this function: `messages/{id}`, the list of the backlog, previews,
redrives, discards, purges, resends, replays and retractions.  Statements that count messages without reading each
of them (lag, positions, flow control) express the same rules in SQL; tests/core/backlog/test_delivery_states.py
compares all of them with one model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from broker.model.sequences import from_bits


class DeliveryState(StrEnum):
    """The state of a message in a subscription; the first five states are those of its backlog."""

    WAITING = "WAITING"  # never delivered, or released before it reached a consumer
    OUTSTANDING = "OUTSTANDING"  # with a consumer, within its ack deadline
    RETRYING = "RETRYING"  # to be redelivered after a nack, or since its ack deadline has passed
    BLOCKED = "BLOCKED"  # by an earlier message of its ordering key, also if its own ack came before that one's
    EXHAUSTED = "EXHAUSTED"  # delivered as often as the dead-letter policy allows, and about to be dead-lettered

    FILTERED = "FILTERED"
    EXPIRED = "EXPIRED"  # past the retention or its time to live, whether or not a claim has dropped it yet
    BEFORE_SUBSCRIPTION = "BEFORE_SUBSCRIPTION"
    DETACHED = "DETACHED"
    SETTLED = "SETTLED"  # only records show how: one of the following, or acked without a record

    ACKNOWLEDGED = "ACKNOWLEDGED"
    DEAD_LETTERED = "DEAD_LETTERED"
    DISCARDED = "DISCARDED"
    PURGED = "PURGED"
    SKIPPED = "SKIPPED"  # by a seek
    DROPPED = "DROPPED"  # by a transform
    EDITED = "EDITED"  # its dead letter came back as another message
    WITHDRAWN = "WITHDRAWN"  # it was a dead letter, and was redriven
    RETRACTED = "RETRACTED"
    CANCELLED = "CANCELLED"  # it was scheduled, and cancelled before its time


# In the order in which the documentation and errors name them.
LISTED = (
    DeliveryState.OUTSTANDING,
    DeliveryState.RETRYING,
    DeliveryState.EXHAUSTED,
    DeliveryState.BLOCKED,
    DeliveryState.WAITING,
)
BACKLOG = frozenset(LISTED)
TAKEN = frozenset({DeliveryState.OUTSTANDING, DeliveryState.EXHAUSTED})  # by a consumer, or by the forwarder


def unsettled(bits: str, *, ordered: bool) -> Sequence[int]:
    """Returns the ordinals of the messages of a row that are not settled, as the SQL function of this name does.

    In the row of an ordering key an ack counts only once all earlier messages of the key are acked.
    """
    if not ordered:
        return from_bits(bits)
    head = bits.find("1")
    return range(head, len(bits)) if head >= 0 else ()


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A row of `delivery_attempts`: messages that one response handed out, or the row of an ordering key.

    `due_at`: when the ack deadline passes, or the messages are redelivered (None: exhausted).  Of a key, the first
    `out_count` messages went out together, the others came back, after so many attempts each (`attempt_numbers`);
    `waiting` are ranges of sequences that wait for the key in the log, before the cursor.  `redriven`: they are
    delivered however old they are.  Reports also read when the messages were last delivered (`delivered_at`) and
    how that attempt failed (`failure`).
    """

    status: str
    attempt_number: int
    due_at: datetime | None
    seqs: Sequence[int]
    open: str
    ordering_key: str | None = None
    out_count: int | None = None
    attempt_numbers: Sequence[int] = ()
    waiting: Sequence[tuple[int, int]] = ()
    redriven: bool = False
    delivered_at: datetime | None = None
    failure: str | None = None
    head: int = field(init=False)  # ordinal of the first message that is not acked; -1: all are

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", self.open.find("1"))

    @property
    def blocker(self) -> int | None:
        """The sequence of the message that blocks the later ones of its ordering key; None: none does."""
        return None if self.head < 0 else self.seqs[self.head]

    @property
    def unsettled(self) -> Sequence[int]:
        """Ordinals of the messages that may be delivered again."""
        return unsettled(self.open, ordered=self.ordering_key is not None)

    def waits(self, seq: int) -> bool:
        """Whether a message of the row's ordering key waits for it in the log, if the cursor has passed it."""
        return any(first <= seq < end for first, end in self.waiting)

    def attempts(self, ordinal: int) -> int:
        """Returns how often a message was delivered."""
        return self.attempt_numbers[ordinal] if self.attempt_numbers else self.attempt_number

    def is_out(self, ordinal: int) -> bool:
        """Whether a message is with a consumer, or was when its ack deadline passed."""
        is_sent = self.out_count is None or ordinal < self.out_count
        return self.status == "delivering" and is_sent and self.open[ordinal] == "1"

    def state(self, ordinal: int, now: datetime) -> DeliveryState:
        """Returns the state of a message that is not settled, whatever its age."""
        if self.is_out(ordinal):
            is_within_deadline = self.due_at is not None and self.due_at > now
            return DeliveryState.OUTSTANDING if is_within_deadline else DeliveryState.RETRYING
        if self.ordering_key is not None and ordinal != self.head:
            return DeliveryState.BLOCKED
        if self.status == "exhausted":
            return DeliveryState.EXHAUSTED
        return DeliveryState.RETRYING if self.attempts(ordinal) else DeliveryState.WAITING

    def states(self, now: datetime) -> Iterator[tuple[int, DeliveryState]]:
        """Yields ordinal and state of each message that is not settled, in order."""
        for ordinal in self.unsettled:
            yield ordinal, self.state(ordinal, now)

    def has_any_out(self, now: datetime) -> bool:
        """Whether any message of the row is with a consumer."""
        return self.status == "delivering" and any(
            state is DeliveryState.OUTSTANDING for _, state in self.states(now)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFacts:
    """The stored facts about a message in one subscription; a row or a cursor that is not stored is None.

    `next_seq`: the first sequence that the cursor has yet to pass (None: the subscription is detached);
    `first_seq`: the first that is the subscription's (None: all are).  `row` holds the message, as its `ordinal`,
    not settled.  `key_row`: the row of its ordering key.  `matches`: whether the filter in force at its publish
    time matches it.
    """

    seq: int
    publish_time: datetime
    expires_at: datetime | None = None
    next_seq: int | None
    first_seq: int | None = None
    row: DeliveryRow | None = None
    ordinal: int = 0
    key_row: DeliveryRow | None = None
    matches: bool = True

    @property
    def waits_for_key(self) -> bool:
        """Whether it waits for its ordering key, before the cursor."""
        is_passed = self.next_seq is not None and self.seq < self.next_seq
        return is_passed and self.row is None and self.key_row is not None and self.key_row.waits(self.seq)

    @property
    def is_behind(self) -> bool:
        """Whether the subscription has passed the message, and nothing of it is stored that is not settled."""
        is_passed = self.next_seq is not None and self.seq < self.next_seq
        return is_passed and self.row is None and not self.waits_for_key

    @property
    def is_redriven(self) -> bool:
        """Whether it is delivered however old it is."""
        if self.row is not None:
            return self.row.redriven
        return self.waits_for_key and self.key_row is not None and self.key_row.redriven

    def is_too_old(self, retained_since: datetime, now: datetime) -> bool:
        """Whether the retention or its time to live keeps it from being delivered again."""
        is_past = self.publish_time < retained_since or (self.expires_at is not None and self.expires_at <= now)
        return is_past and not self.is_redriven


def delivery_state(facts: DeliveryFacts, *, retained_since: datetime, now: datetime) -> DeliveryState:
    """Returns how a message stands with a subscription, as far as that is known without records.

    What is delivered next passes the filter and the age limits again: so both come before what a row says, but not
    before what a consumer has already.
    """
    if facts.next_seq is None:
        return DeliveryState.DETACHED
    if facts.row is not None:
        state = facts.row.state(facts.ordinal, now)
        if state in TAKEN:
            return state
    elif facts.seq >= facts.next_seq or facts.waits_for_key:
        blocked = facts.key_row is not None and facts.key_row.head >= 0
        state = DeliveryState.BLOCKED if blocked else DeliveryState.WAITING
    elif facts.first_seq is not None and facts.seq < facts.first_seq:
        return DeliveryState.BEFORE_SUBSCRIPTION
    else:
        state = DeliveryState.SETTLED
    if not facts.matches:
        return DeliveryState.FILTERED
    if state in BACKLOG and facts.is_too_old(retained_since, now):
        return DeliveryState.EXPIRED
    return state
