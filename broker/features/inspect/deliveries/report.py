"""Reports the state of one message in one subscription, with a sentence that explains it (F3)."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker.core.backlog.delivery_state import DeliveryFacts, DeliveryRow, DeliveryState, delivery_state
from broker.features.dead_letters.dead_letter_state import Resolved
from broker.features.delayed.delay import ScheduledMessage
from broker.features.retraction.retraction import Retraction, StateWhenRetracted
from broker.model.dead_letter import DEADLINE, EXPIRED
from broker.model.durations import format_duration
from broker.model.failure_cause import stored_cause
from broker.model.journal import (
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
from broker.model.message_id import message_id
from broker.model.push_state import PushState
from broker.model.subscription import Subscription
from broker.model.timestamps import format_timestamp

MAX_COUNTED = 10_000  # messages that precede one

DROPPED_VERDICT = "A transform of the topic dropped it when it was published: it was never stored."
GONE_VERDICT = "It is no longer retained."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFact:
    """The dead letter of a message, and how it was resolved (None: that is not recorded)."""

    message_id: str
    publish_time: datetime
    reason: str
    delivery_attempts: int
    resolved: Resolved | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedDelivery:
    """The stored facts about a message for one subscription, from which its report is made.

    `blocked_by`: the number in the id of the message that blocks it (None: it is not blocked).
    """

    subscription: Subscription
    shard_id: int
    facts: DeliveryFacts
    blocked_by: int | None = None
    dead_letter: DeadLetterFact | None = None
    is_ordered: bool = False

    def state(self, now: datetime) -> DeliveryState:
        """Returns the state of the message, as far as it is known without records."""
        return delivery_state(self.facts, retained_since=now - self.subscription.retention, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport:
    """The state of a message in a subscription, and a sentence that explains it (`verdict`).

    `attempt_number`, `delivered_at` and `due_at` are those of a message that was handed out and is not settled:
    `due_at` is its ack deadline (OUTSTANDING) or when it is redelivered (RETRYING).  `endpoint`: the state of the
    push endpoint, if that fails.  `entry`: the record of how the message was settled, if there is one.
    """

    state: DeliveryState
    verdict: str
    attempt_number: int | None = None
    delivered_at: datetime | None = None
    due_at: datetime | None = None
    endpoint: PushState | None = None
    blocked_by_message_id: str = ""
    dead_letter: DeadLetterFact | None = None
    entry: Entry | None = None


def report_of(delivery: ReportedDelivery, now: datetime) -> DeliveryReport:
    """Returns the state of a message and its verdict, as far as they are known without records."""
    state = delivery.state(now)
    row = delivery.facts.row
    if state is DeliveryState.DETACHED:
        return DeliveryReport(state=state, verdict="The subscription is detached: its backlog was dropped.")
    if delivery.dead_letter is not None and delivery.facts.is_behind:
        return _dead_lettered(delivery.dead_letter, delivery.subscription)
    if state is DeliveryState.BEFORE_SUBSCRIPTION:
        return DeliveryReport(state=state, verdict="It was published before the subscription was created.")
    if state is DeliveryState.FILTERED:
        return _filtered(delivery)
    if state is DeliveryState.SETTLED:
        return DeliveryReport(state=state, verdict=_unrecorded(delivery, now))
    if state is DeliveryState.EXPIRED:
        report = DeliveryReport(state=state, verdict=_expired(delivery, now))
    elif state is DeliveryState.BLOCKED and delivery.blocked_by is not None:
        report = _blocked(delivery.shard_id, delivery.blocked_by)
    elif row is None:
        report = DeliveryReport(state=DeliveryState.WAITING, verdict="It was never delivered.")
    else:
        report = DeliveryReport(state=state, verdict=_of_row(row, delivery.facts.ordinal, state))
    return report if row is None else _with_delivery(report, row, delivery.facts.ordinal, now)


def _with_delivery(report: DeliveryReport, row: DeliveryRow, ordinal: int, now: datetime) -> DeliveryReport:
    """Adds what the row of a message says about its last delivery."""
    is_blocked = row.state(ordinal, now) is DeliveryState.BLOCKED
    has_time = report.state in (DeliveryState.OUTSTANDING, DeliveryState.RETRYING)
    return replace(
        report,
        attempt_number=row.attempts(ordinal),
        delivered_at=None if is_blocked else row.delivered_at,
        due_at=row.due_at if has_time else None,
    )


def _unrecorded(delivery: ReportedDelivery, now: datetime) -> str:
    """Explains a settled message without a record; the journal, which has seeks and purges, was searched before."""
    journal = delivery.subscription.journal
    kept = DEFAULT_RETENTION if journal is None else journal.retention
    if delivery.facts.publish_time < now - kept:
        return "It was acked, skipped by a seek, or expired; no record of it is left."
    why = (
        "that is written within a second of the ack, and is missing if the broker process was killed before that, "
        "or if records were switched off"
    )
    if delivery.is_ordered:
        skipped = "skipped by a seek while an earlier message of its ordering key blocked it"
        return f"It was acked, or {skipped}. By whom and when it was acked is not on record: {why}."
    return f"It was acked. By whom and when is not on record: {why}."


def report_until_due(topic: str, message: ScheduledMessage) -> DeliveryReport:
    """Reports a scheduled message, for any subscription: it is in no log yet."""
    id_ = message_id(message.shard_id, message.id_seq)
    verdict = (
        f"It is to be published at {format_timestamp(message.due_at)}; "
        f"/v1/{topic}/scheduled/{id_} shows it, puts it off and cancels it."
    )
    return DeliveryReport(state=DeliveryState.WAITING, verdict=verdict)


def retracted_verdict(retraction: Retraction) -> str:
    """Returns when a message was retracted, by whom, and what was published in its place."""
    by = f" by {retraction.by}" if retraction.by else ""
    if retraction.cancelled:
        return f"It was cancelled at {format_timestamp(retraction.retracted_at)}{by}"
    replaced = retraction.replaced_by
    instead = f"; message {message_id(*replaced)} was published in its place" if replaced is not None else ""
    return f"It was retracted at {format_timestamp(retraction.retracted_at)}{by}{instead}"


def report_of_retracted(retraction: Retraction, delivery: ReportedDelivery | None, now: datetime) -> DeliveryReport:
    """Reports a retracted message; `delivery` is None if it was still scheduled.

    A message that is SETTLED was so before, or has been acked since.
    """
    verdict = retracted_verdict(retraction)
    if delivery is None:
        state = DeliveryState.CANCELLED if retraction.cancelled else DeliveryState.RETRACTED
        return DeliveryReport(state=state, verdict=f"{verdict}, before its time came.")
    state = delivery.state(now)
    if state in (DeliveryState.DETACHED, DeliveryState.BEFORE_SUBSCRIPTION):
        return report_of(delivery, now)
    row = delivery.facts.row
    if state is DeliveryState.OUTSTANDING and row is not None:
        ordinal = delivery.facts.ordinal
        verdict = f"{_of_row(row, ordinal, state)} {verdict}; it is not redelivered."
        return _with_delivery(DeliveryReport(state=state, verdict=verdict), row, ordinal, now)
    then = retraction.states.get(delivery.subscription.subscription_id, StateWhenRetracted.NEVER_DELIVERED)
    if then is StateWhenRetracted.SETTLED:
        return DeliveryReport(state=DeliveryState.SETTLED, verdict=f"It was settled before. {verdict}.")
    how = {
        StateWhenRetracted.NEVER_DELIVERED: "it had never been delivered",
        StateWhenRetracted.RETURNED: "it had been delivered and was due to be redelivered",
        StateWhenRetracted.OUTSTANDING: "it was outstanding then, and is not redelivered",
    }
    return DeliveryReport(state=DeliveryState.RETRACTED, verdict=f"{verdict}: {how[then]}.")


def report_of_gone(entry: Entry) -> DeliveryReport:
    """Reports a message that is not retained, from the record of how it was settled."""
    return settled_by(DeliveryReport(state=DeliveryState.SETTLED, verdict=GONE_VERDICT), entry)


def settled_by(report: DeliveryReport, entry: Entry | None) -> DeliveryReport:
    """Completes the report of a SETTLED message with the record of how it was settled, if there is one."""
    if entry is None or (report.state is DeliveryState.RETRACTED and not _is_ack(entry)):
        return report
    report = replace(report, entry=entry)
    at = format_timestamp(entry.time)
    if entry.event is Event.ACKED:
        return _acked(report, entry, at)
    if entry.event is Event.DEAD_LETTERED:
        verdict = f"It was dead-lettered at {at}, after {entry.attempt} attempts: {entry.answer}."
        return replace(report, state=DeliveryState.DEAD_LETTERED, verdict=verdict)
    if entry.event is Event.EXPIRED:
        tries = f"after attempt {entry.attempt}" if entry.attempt else "and was never delivered"
        verdict = f"Its {entry.answer or 'retention'} had ended at {at}, {tries}."
        return replace(report, state=DeliveryState.EXPIRED, verdict=verdict)
    if entry.event is Event.RETRACTED:
        return report
    if entry.event is Event.WITHDRAWN and entry.answer.startswith(EDITED_INTO):
        successor = entry.answer.removeprefix(EDITED_INTO)
        verdict = f"Its dead letter was edited at {at}{_by(entry.author)}, and came back as message {successor}."
        return replace(report, state=DeliveryState.EDITED, verdict=verdict)
    if entry.event is Event.WITHDRAWN and entry.answer:
        verdict = f"It was redriven to {entry.answer} at {at}{_by(entry.author)}, as a new message."
        return replace(report, state=DeliveryState.WITHDRAWN, verdict=verdict)
    if entry.event is Event.WITHDRAWN:
        verdict = f"It was redriven at {at}{_by(entry.author)} to the subscription that had dead-lettered it."
        return replace(report, state=DeliveryState.WITHDRAWN, verdict=verdict)
    return replace(report, state=DeliveryState.SKIPPED, verdict=f"A seek at {at}{_by(entry.author)} skipped it.")


def _is_ack(entry: Entry) -> bool:
    """Whether a consumer acked the message; records of seeks and purges name all messages that they passed."""
    return entry.event is Event.ACKED and entry.answer not in (PURGED, DISCARDED)


def _acked(report: DeliveryReport, entry: Entry, at: str) -> DeliveryReport:
    if entry.author == TRANSFORM:
        verdict = f"A transform of the subscription dropped it at {at}."
        return replace(report, state=DeliveryState.DROPPED, verdict=verdict)
    if entry.answer in (PURGED, DISCARDED):  # by an operator
        verdict = f"It was {entry.answer} at {at}{_by(entry.author)}."
        return replace(report, state=DeliveryState(entry.answer.upper()), verdict=verdict)
    pushed = entry.author.client == PUSH.client
    how = f", pushed and answered {entry.answer}" if pushed else _by(entry.author)
    verdict = f"It was acked at {at}{how} (attempt {entry.attempt})."
    return replace(report, state=DeliveryState.ACKNOWLEDGED, verdict=verdict)


def _by(author: Author) -> str:
    """Returns the principal and the client of an author, as the end of a sentence."""
    if author.principal and author.client:
        return f" by {author.principal} ({author.client})"
    who = author.principal or author.client
    return f" by {who}" if who else ""


def _expired(delivery: ReportedDelivery, now: datetime) -> str:
    row, time = delivery.facts.row, _time_it_had(delivery, now)
    if row is None:
        return f"It was not delivered within its {time}."
    tries = f"attempt {row.attempts(delivery.facts.ordinal)}"
    return f"It was not acked within its {time} ({tries}, {_failed(row)})."


def _time_it_had(delivery: ReportedDelivery, now: datetime) -> str:
    expires_at = delivery.facts.expires_at
    if expires_at is not None and expires_at <= now:
        return f"time to live of {format_duration(expires_at - delivery.facts.publish_time)}"
    return f"retention of {delivery.subscription.retention / timedelta(days=1):g} days"


def _of_row(row: DeliveryRow, ordinal: int, state: DeliveryState) -> str:
    """Returns the verdict on a message that was handed out and is not settled."""
    number = row.attempts(ordinal)
    since = "" if row.delivered_at is None else format_timestamp(row.delivered_at)
    at = "" if row.due_at is None else format_timestamp(row.due_at)
    if state is DeliveryState.OUTSTANDING:
        return f"It is outstanding since {since} (attempt {number}); its ack deadline is {at}."
    if state is DeliveryState.RETRYING:
        return f"It was delivered at {since} (attempt {number}), {_failed(row)}; it is redelivered from {at} on."
    if state is DeliveryState.EXHAUSTED:
        why = "It is past its time to live" if row.failure == EXPIRED else f"It has failed {number} times"
        return f"{why} and is about to be dead-lettered."
    if row.redriven:
        return "It was redriven from the dead-letter topic and has not been delivered since."
    return "It was released before it reached a consumer, and has not been delivered since."


def _failed(row: DeliveryRow) -> str:
    return "not acked" if row.failure in (None, DEADLINE) else f"failed: {stored_cause(row.failure).reason}"


def _blocked(shard_id: int, blocker: int) -> DeliveryReport:
    blocked_by = message_id(shard_id, blocker)
    verdict = f"It is blocked by message {blocked_by}, an earlier one of its ordering key that is not acked."
    return DeliveryReport(state=DeliveryState.BLOCKED, verdict=verdict, blocked_by_message_id=blocked_by)


def _filtered(delivery: ReportedDelivery) -> DeliveryReport:
    decides = delivery.subscription.filter_of(delivery.facts.publish_time)
    was = "" if decides == delivery.subscription.filter else " of the time when it was published"
    return DeliveryReport(state=DeliveryState.FILTERED, verdict=f"It does not match the filter{was}: {decides}")


def _dead_lettered(dead_letter: DeadLetterFact, subscription: Subscription) -> DeliveryReport:
    policy = subscription.dead_letter_policy
    where = f" to {policy.dead_letter_topic}" if policy is not None else ""
    at = format_timestamp(dead_letter.publish_time)
    verdict = (
        f"It was dead-lettered{where} as message {dead_letter.message_id} at {at}, "
        f"after {dead_letter.delivery_attempts} attempts: {dead_letter.reason}."
    )
    if dead_letter.resolved is not None:
        verdict += f" The dead letter {dead_letter.resolved.verdict()}."
    return DeliveryReport(state=DeliveryState.DEAD_LETTERED, verdict=verdict, dead_letter=dead_letter)
