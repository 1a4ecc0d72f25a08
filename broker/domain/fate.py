"""What became of a message for one subscription (F3): from what is kept of both, exactly, or not at all."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.domain.dead_letter import DEADLINE, EXPIRED
from broker.domain.delay import ScheduledMessage
from broker.domain.delivery_state import DeliveryFacts, DeliveryState, delivery_state
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
from broker.domain.push_state import PushState
from broker.domain.retraction import Retraction, Standing
from broker.domain.standing_page import StandingMessage
from broker.domain.subscription import Subscription
from broker.domain.timestamps import format_timestamp

MAX_COUNTED = 10_000  # messages that stand before one


_CAME_BACK = "It was redriven from the dead-letter topic and has not been delivered since."
_GIVEN_BACK = "It was released before it reached a consumer, and has not been delivered since."


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
    """What is stored of a message for one subscription.

    `standing`: the message as the list of the backlog has it, if it was handed out and is not settled.
    `blocked_by`: what the id of the message is made of that blocks it, if one does.
    """

    subscription: Subscription
    shard_id: int
    delivery: DeliveryFacts
    standing: StandingMessage | None = None
    blocked_by: int | None = None
    dead_letter: DeadLetterFact | None = None
    is_ordered: bool = False

    @property
    def seq(self) -> int:
        return self.delivery.seq

    @property
    def publish_time(self) -> datetime:
        return self.delivery.publish_time

    def state(self, now: datetime) -> DeliveryState:
        """Returns how the message stands, as far as that is known without records."""
        return delivery_state(self.delivery, retained_since=now - self.subscription.retention, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFate:
    """`state` and, as a sentence, `verdict`.

    `endpoint`: the state of its endpoint, if that fails.  `entry`: the record of how it ended, if there is one.
    """

    state: DeliveryState
    verdict: str
    endpoint: PushState | None = None
    standing: StandingMessage | None = None
    blocked_by_message_id: str = ""
    dead_letter: DeadLetterFact | None = None
    entry: Entry | None = None


def fate_of(facts: Facts, now: datetime) -> MessageFate:
    """Returns the state of a message and its verdict, as far as they are known without records."""
    state = facts.state(now)
    if state is DeliveryState.DETACHED:
        return MessageFate(state=state, verdict="The subscription is detached: its backlog was dropped.")
    if facts.dead_letter is not None and facts.delivery.is_behind:
        return _dead_lettered(facts.dead_letter, facts.subscription)
    if state is DeliveryState.BEFORE_SUBSCRIPTION:
        return MessageFate(state=state, verdict="It was published before the subscription was created.")
    if state is DeliveryState.FILTERED:
        return _filtered(facts)
    if state is DeliveryState.EXPIRED:
        return _expired(facts, now)
    if state is DeliveryState.SETTLED:
        return MessageFate(state=state, verdict=_unrecorded(facts, now))
    if state is DeliveryState.BLOCKED and facts.blocked_by is not None:
        return _blocked(facts, facts.blocked_by)
    if facts.standing is None:
        return MessageFate(state=DeliveryState.WAITING, verdict="It was never delivered.")
    return _standing(facts.standing, state)


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
    if facts.is_ordered:
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
    return MessageFate(state=DeliveryState.WAITING, verdict=verdict)


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
        state = DeliveryState.CANCELLED if retraction.cancelled else DeliveryState.RETRACTED
        return MessageFate(state=state, verdict=f"{verdict}, before its time came.")
    state = facts.state(now)
    if state in (DeliveryState.DETACHED, DeliveryState.BEFORE_SUBSCRIPTION):
        return fate_of(facts, now)
    if state is DeliveryState.OUTSTANDING and facts.standing is not None:
        fate = _standing(facts.standing, state)
        return replace(fate, verdict=f"{fate.verdict} {verdict}; it is not redelivered.")
    standing = retraction.standings.get(facts.subscription.subscription_id, Standing.IN_TIME)
    if standing is Standing.DONE_WITH:
        return MessageFate(state=DeliveryState.SETTLED, verdict=f"It was settled before. {verdict}.")
    how = {
        Standing.IN_TIME: "it had never been delivered",
        Standing.RETURNED: "it had been delivered and was due to be redelivered",
        Standing.OUTSTANDING: "it was outstanding then, and is not redelivered",
    }
    return MessageFate(state=DeliveryState.RETRACTED, verdict=f"{verdict}: {how[standing]}.")


def fate_of_gone(entry: Entry) -> MessageFate:
    """Of a message that is not retained, but of which a record is; `entry`: what settled it."""
    return settled_by(MessageFate(state=DeliveryState.SETTLED, verdict=GONE_VERDICT), entry)


def settled_by(fate: MessageFate, entry: Entry | None) -> MessageFate:
    """What the record and the journal make of one that is SETTLED; `entry`: what settled it, if that is told."""
    if entry is None or (fate.state is DeliveryState.RETRACTED and not _is_ack(entry)):
        return fate
    fate = replace(fate, entry=entry)
    at = format_timestamp(entry.time)
    if entry.event is Event.ACKED:
        return _acked(fate, entry, at)
    if entry.event is Event.DEAD_LETTERED:
        verdict = f"It was dead-lettered at {at}, after {entry.attempt} attempts: {entry.answer}."
        return replace(fate, state=DeliveryState.DEAD_LETTERED, verdict=verdict)
    if entry.event is Event.EXPIRED:
        tries = f"after attempt {entry.attempt}" if entry.attempt else "and was never delivered"
        verdict = f"Its {entry.answer or 'retention'} had ended at {at}, {tries}."
        return replace(fate, state=DeliveryState.EXPIRED, verdict=verdict)
    if entry.event is Event.RETRACTED:
        return fate
    if entry.event is Event.WITHDRAWN and entry.answer.startswith(EDITED_INTO):
        successor = entry.answer.removeprefix(EDITED_INTO)
        verdict = f"Its dead letter was edited at {at}{_by(entry.author)}, and came back as message {successor}."
        return replace(fate, state=DeliveryState.EDITED, verdict=verdict)
    if entry.event is Event.WITHDRAWN and entry.answer:
        verdict = f"It was redriven to {entry.answer} at {at}{_by(entry.author)}, as a new message."
        return replace(fate, state=DeliveryState.WITHDRAWN, verdict=verdict)
    if entry.event is Event.WITHDRAWN:
        verdict = f"It was redriven at {at}{_by(entry.author)} to the subscription that had dead-lettered it."
        return replace(fate, state=DeliveryState.WITHDRAWN, verdict=verdict)
    return replace(fate, state=DeliveryState.SKIPPED, verdict=f"A seek at {at}{_by(entry.author)} skipped it.")


def _is_ack(entry: Entry) -> bool:
    """Whether a consumer acked the message; seeks and purges are told of all messages that they pass."""
    return entry.event is Event.ACKED and entry.answer not in (PURGED, DISCARDED)


def _acked(fate: MessageFate, entry: Entry, at: str) -> MessageFate:
    if entry.author == TRANSFORM:
        verdict = f"A transform of the subscription dropped it at {at}."
        return replace(fate, state=DeliveryState.DROPPED, verdict=verdict)
    if entry.answer in (PURGED, DISCARDED):  # by an operator
        verdict = f"It was {entry.answer} at {at}{_by(entry.author)}."
        return replace(fate, state=DeliveryState(entry.answer.upper()), verdict=verdict)
    pushed = entry.author.client == PUSH.client
    how = f", pushed and answered {entry.answer}" if pushed else _by(entry.author)
    verdict = f"It was acked at {at}{how} (attempt {entry.attempt})."
    return replace(fate, state=DeliveryState.ACKNOWLEDGED, verdict=verdict)


def _by(author: Author) -> str:
    """Who, and from where."""
    if author.principal and author.client:
        return f" by {author.principal} ({author.client})"
    who = author.principal or author.client
    return f" by {who}" if who else ""


def _expired(facts: Facts, now: datetime) -> MessageFate:
    standing, time = facts.standing, _time_it_had(facts, now)
    if standing is None:
        return MessageFate(state=DeliveryState.EXPIRED, verdict=f"It was not delivered within its {time}.")
    failed = "not acked" if standing.failure in (None, DEADLINE) else f"failed: {standing.failure}"
    verdict = f"It was not acked within its {time} (attempt {standing.attempt_number}, {failed})."
    return MessageFate(state=DeliveryState.EXPIRED, verdict=verdict, standing=replace(standing, at=None))


def _time_it_had(facts: Facts, now: datetime) -> str:
    expires_at = facts.delivery.expires_at
    if expires_at is not None and expires_at <= now:
        return f"time to live of {format_duration(expires_at - facts.publish_time)}"
    return f"retention of {facts.subscription.retention / timedelta(days=1):g} days"


def _standing(standing: StandingMessage, state: DeliveryState) -> MessageFate:
    tries = f"attempt {standing.attempt_number}"
    failed = "not acked" if standing.failure in (None, DEADLINE) else f"failed: {standing.failure}"
    since = "" if standing.delivered_at is None else format_timestamp(standing.delivered_at)
    at = "" if standing.at is None else format_timestamp(standing.at)
    verdict = {
        DeliveryState.OUTSTANDING: f"It is outstanding since {since} ({tries}); its ack deadline is {at}.",
        DeliveryState.RETRYING: f"It was delivered at {since} ({tries}), {failed}; it is redelivered from {at} on.",
        DeliveryState.EXHAUSTED: f"{_why_given_up(standing)} and is about to be dead-lettered.",
        DeliveryState.WAITING: _CAME_BACK if standing.redriven else _GIVEN_BACK,
    }
    return MessageFate(state=state, verdict=verdict[state], standing=standing)


def _why_given_up(standing: StandingMessage) -> str:
    if standing.failure == EXPIRED:
        return "It is past its time to live"
    return f"It has failed {standing.attempt_number} times"


def _blocked(facts: Facts, blocker: int) -> MessageFate:
    blocked_by = message_id(facts.shard_id, blocker)
    verdict = f"It is blocked by message {blocked_by}, an earlier one of its ordering key that is not acked."
    return MessageFate(
        state=DeliveryState.BLOCKED, verdict=verdict, standing=facts.standing, blocked_by_message_id=blocked_by
    )


def _filtered(facts: Facts) -> MessageFate:
    decides = facts.subscription.filter_of(facts.publish_time)
    was = "" if decides == facts.subscription.filter else " of the time when it was published"
    return MessageFate(state=DeliveryState.FILTERED, verdict=f"It does not match the filter{was}: {decides}")


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
    return MessageFate(state=DeliveryState.DEAD_LETTERED, verdict=verdict, dead_letter=letter)
