"""What became of a message for one subscription (F3): from what is kept of both, exactly, or not at all."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from broker.domain.dead_letter import DEADLINE, EXPIRED
from broker.domain.delay import ScheduledMessage
from broker.domain.durations import format_duration
from broker.domain.journal import (
    DEFAULT_RETENTION,
    DISCARDED,
    EDITED_INTO,
    PURGED,
    PUSH,
    TRANSFORM,
    Author,
    Entry,
    Event,
)
from broker.domain.letter_standing import Resolved
from broker.domain.message_id import message_id
from broker.domain.message_state import MessageState
from broker.domain.push_state import PushState
from broker.domain.retraction import Retraction, Standing
from broker.domain.standing_page import StandingMessage
from broker.domain.subscription import Subscription
from broker.domain.timestamps import format_timestamp

MAX_COUNTED = 10_000  # messages that stand before one


_CAME_BACK = "It was redriven from the dead-letter topic and has not been delivered since."
_GIVEN_BACK = "It was released before it reached a consumer, and has not been delivered since."


class Fate(StrEnum):
    """The states of MessageState, and those of a message that the subscription is done with or never receives.

    SETTLED: most likely acknowledged, without a record of it.  DROPPED: by a transform.  SKIPPED: by a seek.
    EDITED: its dead letter came back as another message.  WITHDRAWN: it was a dead letter, and was redriven.
    """

    OUTSTANDING = "OUTSTANDING"
    RETRYING = "RETRYING"
    EXHAUSTED = "EXHAUSTED"
    BLOCKED = "BLOCKED"
    WAITING = "WAITING"
    FILTERED = "FILTERED"
    EXPIRED = "EXPIRED"
    BEFORE_SUBSCRIPTION = "BEFORE_SUBSCRIPTION"
    DEAD_LETTERED = "DEAD_LETTERED"
    DETACHED = "DETACHED"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    DROPPED = "DROPPED"
    PURGED = "PURGED"
    DISCARDED = "DISCARDED"
    EDITED = "EDITED"
    WITHDRAWN = "WITHDRAWN"
    SKIPPED = "SKIPPED"
    SETTLED = "SETTLED"
    RETRACTED = "RETRACTED"
    CANCELLED = "CANCELLED"


_WITH_SOMEBODY = frozenset({Fate.OUTSTANDING, Fate.EXHAUSTED})  # who may still ack it, or sends it on


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFact:
    """Where a message went that was given up, and what became of it there (None: nothing that is recorded)."""

    message_id: str
    publish_time: datetime
    reason: str
    delivery_attempts: int
    resolved: Resolved | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is kept.  `next_seq`: where the subscription's cursor stands (None: it is detached); `first_seq`: where
    it began (None: that was not written down yet).  `standing`: how the message stands if it was handed out and is
    not acked.  `held_by`: the first message of its key that is out, by what its id is made of; it `waits` for that,
    before the cursor.  From `expires_at` on (None: never) it is not delivered.
    `redriven`: some of its key came back from a dead-letter topic, which is delivered however old it is.
    """

    subscription: Subscription
    shard_id: int
    seq: int
    publish_time: datetime
    ordering_key: str | None
    expires_at: datetime | None = None
    next_seq: int | None = None
    first_seq: int | None = None
    matches: bool = True
    standing: StandingMessage | None = None
    held_by: int | None = None
    waits: bool = False
    redriven: bool = False
    dead_letter: DeadLetterFact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFate:
    """`state` and, as a sentence, `verdict`.

    `endpoint`: the state of its endpoint, if that fails.  `entry`: the record of how it ended, if there is one.
    """

    state: Fate
    verdict: str
    endpoint: PushState | None = None
    standing: StandingMessage | None = None
    blocked_by_message_id: str = ""
    dead_letter: DeadLetterFact | None = None
    entry: Entry | None = None


def fate_of(facts: Facts, now: datetime) -> MessageFate:
    """What became of it, as far as that can be known."""
    if facts.next_seq is None:
        return MessageFate(state=Fate.DETACHED, verdict="The subscription is detached: its backlog was dropped.")
    if facts.standing is not None:
        return _standing(facts, facts.standing, now)
    if facts.waits or facts.seq >= facts.next_seq:
        return _to_come(facts, now)
    if facts.dead_letter is not None:
        return _dead_lettered(facts.dead_letter, facts.subscription)
    if facts.first_seq is not None and facts.seq < facts.first_seq:
        return MessageFate(
            state=Fate.BEFORE_SUBSCRIPTION, verdict="It was published before the subscription was created."
        )
    if not facts.matches:
        return _filtered(facts)
    return MessageFate(state=Fate.SETTLED, verdict=_unrecorded(facts, now))


def _unrecorded(facts: Facts, now: datetime) -> str:
    """Seeks, purges, discards and expiries are in the journal of every subscription, which was searched before."""
    journal = facts.subscription.journal
    kept = DEFAULT_RETENTION if journal is None else journal.retention
    if facts.publish_time < now - kept:
        return "It was acked, skipped by a seek, or expired; no record of it is left."
    why = (
        "that is written within a second of the ack, and is missing if the broker process was killed before that, "
        "or if records were switched off"
    )
    if facts.ordering_key and facts.subscription.enable_message_ordering:
        skipped = "skipped by a seek while an earlier message of its ordering key blocked it"
        return f"It was acked, or {skipped}. By whom and when it was acked is not on record: {why}."
    return f"It was acked. By whom and when is not on record: {why}."


def fate_until_due(topic: str, message: ScheduledMessage) -> MessageFate:
    """Of a message that is in no log yet, for whoever subscribes; its subscriptions may change until it comes."""
    id_ = message_id(message.shard_id, message.id_seq)
    verdict = (
        f"It is to be published at {format_timestamp(message.due_at)}; "
        f"/v1/{topic}/scheduled/{id_} shows it, puts it off and cancels it."
    )
    return MessageFate(state=Fate.WAITING, verdict=verdict)


DROPPED_VERDICT = "A transform of the topic dropped it when it was published: it was never stored."
GONE_VERDICT = "It is no longer retained."


def retracted_verdict(retraction: Retraction) -> str:
    """When, by whom, and what came in its place."""
    by = f" by {retraction.by}" if retraction.by else ""
    if retraction.cancelled:
        return f"It was cancelled at {format_timestamp(retraction.retracted_at)}{by}"
    replaced = retraction.replaced_by
    instead = f"; message {message_id(*replaced)} was published in its place" if replaced is not None else ""
    return f"It was retracted at {format_timestamp(retraction.retracted_at)}{by}{instead}"


def fate_of_retracted(retraction: Retraction, facts: Facts | None, now: datetime) -> MessageFate:
    """`facts` None: it was still to come.  One that is SETTLED was so before, or was acked since."""
    verdict = retracted_verdict(retraction)
    if facts is None:
        state = Fate.CANCELLED if retraction.cancelled else Fate.RETRACTED
        return MessageFate(state=state, verdict=f"{verdict}, before its time came.")
    if facts.next_seq is None or (facts.first_seq is not None and facts.seq < facts.first_seq):
        return fate_of(facts, now)
    if facts.standing is not None and facts.standing.state is MessageState.OUTSTANDING:
        fate = _standing(facts, facts.standing, now)
        return replace(fate, verdict=f"{fate.verdict} {verdict}; it is not redelivered.")
    standing = retraction.standings.get(facts.subscription.subscription_id, Standing.IN_TIME)
    if standing is Standing.DONE_WITH:
        return MessageFate(state=Fate.SETTLED, verdict=f"It was settled before. {verdict}.")
    how = {
        Standing.IN_TIME: "it had never been delivered",
        Standing.RETURNED: "it had been delivered and was due to be redelivered",
        Standing.OUTSTANDING: "it was outstanding then, and is not redelivered",
    }
    return MessageFate(state=Fate.RETRACTED, verdict=f"{verdict}: {how[standing]}.")


def fate_of_gone(entry: Entry) -> MessageFate:
    """Of a message that is not retained, but of which a record is; `entry`: what settled it."""
    return settled_by(MessageFate(state=Fate.SETTLED, verdict=GONE_VERDICT), entry)


def settled_by(fate: MessageFate, entry: Entry | None) -> MessageFate:
    """What the record and the journal make of one that is SETTLED; `entry`: what settled it, if that is told."""
    if entry is None:
        return fate
    fate = replace(fate, entry=entry)
    at = format_timestamp(entry.time)
    if entry.event is Event.ACKED:
        return _acked(fate, entry, at)
    if entry.event is Event.DEAD_LETTERED:
        verdict = f"It was dead-lettered at {at}, after {entry.attempt} attempts: {entry.answer}."
        return replace(fate, state=Fate.DEAD_LETTERED, verdict=verdict)
    if entry.event is Event.EXPIRED:
        tries = f"after attempt {entry.attempt}" if entry.attempt else "and was never delivered"
        verdict = f"Its {entry.answer or 'retention'} had ended at {at}, {tries}."
        return replace(fate, state=Fate.EXPIRED, verdict=verdict)
    if entry.event is Event.RETRACTED:
        return fate
    if entry.event is Event.WITHDRAWN and entry.answer.startswith(EDITED_INTO):
        successor = entry.answer.removeprefix(EDITED_INTO)
        verdict = f"Its dead letter was edited at {at}{_by(entry.author)}, and came back as message {successor}."
        return replace(fate, state=Fate.EDITED, verdict=verdict)
    if entry.event is Event.WITHDRAWN and entry.answer:
        verdict = f"It was redriven to {entry.answer} at {at}{_by(entry.author)}, as a new message."
        return replace(fate, state=Fate.WITHDRAWN, verdict=verdict)
    if entry.event is Event.WITHDRAWN:
        verdict = f"It was redriven at {at}{_by(entry.author)} to the subscription that had dead-lettered it."
        return replace(fate, state=Fate.WITHDRAWN, verdict=verdict)
    return replace(fate, state=Fate.SKIPPED, verdict=f"A seek at {at}{_by(entry.author)} skipped it.")


def _acked(fate: MessageFate, entry: Entry, at: str) -> MessageFate:
    if entry.author == TRANSFORM:
        verdict = f"A transform of the subscription dropped it at {at}."
        return replace(fate, state=Fate.DROPPED, verdict=verdict)
    if entry.answer in (PURGED, DISCARDED):  # by an operator
        verdict = f"It was {entry.answer} at {at}{_by(entry.author)}."
        return replace(fate, state=Fate(entry.answer.upper()), verdict=verdict)
    pushed = entry.author.client == PUSH.client
    how = f", pushed and answered {entry.answer}" if pushed else _by(entry.author)
    verdict = f"It was acked at {at}{how} (attempt {entry.attempt})."
    return replace(fate, state=Fate.ACKNOWLEDGED, verdict=verdict)


def _by(author: Author) -> str:
    """Who, and from where."""
    if author.principal and author.client:
        return f" by {author.principal} ({author.client})"
    who = author.principal or author.client
    return f" by {who}" if who else ""


def _to_come(facts: Facts, now: datetime) -> MessageFate:
    if not facts.matches:
        return _filtered(facts)
    if _is_past(facts, now) and not (facts.waits and facts.redriven):
        verdict = f"It was not delivered within its {_time_it_had(facts, now)}."
        return MessageFate(state=Fate.EXPIRED, verdict=verdict)
    if facts.ordering_key and facts.held_by is not None:
        return _held(facts, facts.held_by)
    return MessageFate(state=Fate.WAITING, verdict="It was never delivered.")


def _is_past(facts: Facts, now: datetime) -> bool:
    return _outlived(facts, now) or facts.publish_time < now - facts.subscription.retention


def _outlived(facts: Facts, now: datetime) -> bool:
    return facts.expires_at is not None and facts.expires_at <= now


def _time_it_had(facts: Facts, now: datetime) -> str:
    if facts.expires_at is not None and _outlived(facts, now):
        return f"time to live of {format_duration(facts.expires_at - facts.publish_time)}"
    return f"retention of {facts.subscription.retention / timedelta(days=1):g} days"


def _standing(facts: Facts, standing: StandingMessage, now: datetime) -> MessageFate:
    state, tries = Fate(standing.state), f"attempt {standing.attempt_number}"
    failed = "not acked" if standing.failure in (None, DEADLINE) else f"failed: {standing.failure}"
    if state not in _WITH_SOMEBODY and not standing.redriven and _is_past(facts, now):
        why = f"It was not acked within its {_time_it_had(facts, now)} ({tries}, {failed})."
        return MessageFate(state=Fate.EXPIRED, verdict=why, standing=replace(standing, at=None))
    if state is Fate.BLOCKED and standing.held_by is not None:
        return _held(facts, standing.held_by)
    since = "" if standing.delivered_at is None else format_timestamp(standing.delivered_at)
    at = "" if standing.at is None else format_timestamp(standing.at)
    verdict = {
        Fate.OUTSTANDING: f"It is outstanding since {since} ({tries}); its ack deadline is {at}.",
        Fate.RETRYING: f"It was delivered at {since} ({tries}), {failed}; it is redelivered from {at} on.",
        Fate.EXHAUSTED: f"{_why_given_up(standing)} and is about to be dead-lettered.",
        Fate.WAITING: _CAME_BACK if standing.redriven else _GIVEN_BACK,
    }
    return MessageFate(state=state, verdict=verdict[state], standing=standing)


def _why_given_up(standing: StandingMessage) -> str:
    if standing.failure == EXPIRED:
        return "It is past its time to live"
    return f"It has failed {standing.attempt_number} times"


def _held(facts: Facts, holder: int) -> MessageFate:
    held_by = message_id(facts.shard_id, holder)
    verdict = f"It is blocked by message {held_by}, an earlier one of its ordering key that is not acked."
    return MessageFate(state=Fate.BLOCKED, verdict=verdict, standing=facts.standing, blocked_by_message_id=held_by)


def _filtered(facts: Facts) -> MessageFate:
    decides = facts.subscription.filter_of(facts.publish_time)
    was = "" if decides == facts.subscription.filter else " of the time when it was published"
    return MessageFate(state=Fate.FILTERED, verdict=f"It does not match the filter{was}: {decides}")


def _dead_lettered(letter: DeadLetterFact, subscription: Subscription) -> MessageFate:
    policy = subscription.dead_letter_policy
    where = f" to {policy.dead_letter_topic}" if policy is not None else ""
    at = format_timestamp(letter.publish_time)
    verdict = (
        f"It was dead-lettered{where} as message {letter.message_id} at {at}, "
        f"after {letter.delivery_attempts} attempts: {letter.reason}."
    )
    if letter.resolved is not None:
        verdict += f" The dead letter {letter.resolved.verdict()}."
    return MessageFate(state=Fate.DEAD_LETTERED, verdict=verdict, dead_letter=letter)
