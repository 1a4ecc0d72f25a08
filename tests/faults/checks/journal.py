"""The journal of a subscription tells what happened, in its order, once, and nothing else (F3).

What was answered is told.  What had no answer may be told or not; that it is not told twice, or in an order that
cannot be, is for `check_stories` to say.  A change that had to be tried again may be told twice: its first try may
have been made, and its answer lost.
"""

from collections.abc import Iterator

from tests.faults.checks.acks import CLOCK_SLACK_SECONDS, SETTLING_SECONDS, live_until, may_have_acked, sure_acks
from tests.faults.checks.view import SUCCESSES, Receipt, SubscriptionView, View
from tests.faults.checks.violation import Violation, violation
from tests.faults.history import Reported, Settle, Subscription

APART_SECONDS = 2 * CLOCK_SLACK_SECONDS  # two processes' ideas of the database's time
_SETTLED = frozenset({"ACKED", "DEAD_LETTERED"})
_CHANGED = frozenset({"EXTENDED", "NACKED", "REJECTED"})
_NEVER = frozenset({"EXPIRED", "SKIPPED", "REPLAYED"})  # no run is long enough, nobody seeks there


def check_stories(view: View) -> Iterator[Violation]:
    """What is told of a message could have happened to it, in this order."""
    for subscription, number, message_id, reported in _stories(view):
        if (wrong := _Teller(subscription.subscription).mistake(reported)) is not None:
            where = f"{subscription.name}: {message_id}: {wrong}: {_short(reported)}"
            yield violation("told wrongly", where, [number])


class _Teller:
    """What has become of a message, as far as it is told."""

    def __init__(self, subscription: Subscription) -> None:
        self._ordered = subscription.ordered  # an ack of a key is taken back with what is before it
        self._attempt = 0 if subscription.includes("HANDED_OUT", 1) else 1
        self._is_released = False
        self._settled = ""

    def mistake(self, reported: list[Reported]) -> str | None:
        """The first that cannot be."""
        latest = 0.0
        for each in reported:
            if each.at < latest - APART_SECONDS:
                return f"{each.event} is told of a time before what was told before it"
            latest = max(latest, each.at)
            if (wrong := self._step(each)) is not None:
                return wrong
        return None

    def _step(self, reported: Reported) -> str | None:
        event, settled = reported.event, self._settled
        is_final = settled == "DEAD_LETTERED" or (settled == "ACKED" and not self._ordered)
        if event == "HANDED_OUT":
            wrong = is_final or reported.attempt != self._attempt + (not self._is_released)
            self._attempt, self._is_released, self._settled = reported.attempt, False, ""
            return f"HANDED_OUT {reported.attempt} comes too early, too late or twice" if wrong else None
        if event == "RELEASED":
            self._is_released = True
            return f"RELEASED after {settled}" if is_final else None
        if event == "REDRIVEN":
            self._attempt, self._is_released, self._settled = 0, False, ""
            return None if settled == "DEAD_LETTERED" else f"REDRIVEN after {settled or 'nothing'}"
        if reported.answer == "discarded" and settled == "DEAD_LETTERED":
            return None  # its dead letter was
        if event in _SETTLED:
            self._settled = event
            if settled:
                return f"{event} after {settled}"
        elif event not in _CHANGED:
            return None
        elif is_final:
            return f"{event} after {settled}"
        elif self._ordered:
            self._settled = ""
        counted = {self._attempt, self._attempt - 1} if self._is_released else {self._attempt}
        return None if self._attempt and reported.attempt in counted else f"{event} of attempt {reported.attempt}"


def check_stories_end(view: View) -> Iterator[Violation]:
    """Of a run that was drained: each message was handed out, and was acked or dead-lettered at last."""
    for subscription in view.subscriptions.values():
        if subscription.subscription.journal and subscription.receipts and not subscription.timelines:
            yield violation("a story without an end", f"{subscription.name}: nobody read its journal")
        yield from _check_share(subscription)
    for subscription, number, message_id, reported in _stories(view):
        if _may_end_untold(subscription.subscription, reported):
            continue
        last = next((each.event for each in reversed(reported) if each.event not in _CHANGED), "nothing")
        if last not in _SETTLED:
            where = f"{subscription.name}: {message_id} ends with {last}: {_short(reported)}"
            yield violation("a story without an end", where, [number])


def _may_end_untold(subscription: Subscription, reported: list[Reported]) -> bool:
    """It is not in the share; or, where failures are told, its first attempt was acked, though late perhaps."""
    if subscription.journal == "FAILURES":
        return all(each.attempt == 1 for each in reported)
    return not reported and subscription.journal_share < 1.0


def _check_share(subscription: SubscriptionView) -> Iterator[Violation]:
    """Some messages have a story and some have none; of so many it is no chance."""
    stories = {bool(timeline.reported) for _, timeline in subscription.timelines}
    if subscription.subscription.journal_share < 1.0 and len(subscription.timelines) > 30 and len(stories) < 2:
        yield violation("no share", f"{subscription.name}: of {len(subscription.timelines)} messages {stories}")


def check_what_was_answered_is_told(view: View) -> Iterator[Violation]:
    """A message that was received, and each ack, nack and new deadline that certainly took effect; at its time."""
    for subscription, number, message_id, reported in _stories(view):
        if not reported and subscription.subscription.journal_share < 1.0:
            continue
        for receipt in subscription.receipts.get(message_id, ()):
            for event, operation, since, until in _certain(view, subscription, receipt):
                if not subscription.subscription.includes(event, receipt.delivery.attempt or 1):
                    continue
                since, until = since - APART_SECONDS, until + APART_SECONDS
                if not any(_is_it(each, event, receipt) and since <= each.at <= until for each in reported):
                    where = f"{subscription.name}: {receipt.delivery.text!r}: {event} from {since} to {until}"
                    yield violation("not told", f"{where}: {_short(reported)}", [operation, number])


_Certain = tuple[str, int, float, float]  # the event, the operation, and between which times it was


def _certain(view: View, subscription: SubscriptionView, receipt: Receipt) -> Iterator[_Certain]:
    yield "HANDED_OUT", receipt.number, receipt.since, receipt.received
    if receipt.receive.how == "push":
        yield from _certain_of_push(view, subscription, receipt)
        return
    for number, settle in sure_acks(subscription, [receipt]):  # one before it may have been made
        yield "ACKED", number, receipt.since, settle.ended
    for number, settle in receipt.settles:
        if settle.seconds is not None and _surely_changed(subscription, receipt, number, settle):
            yield "EXTENDED" if settle.seconds else "NACKED", number, settle.began, settle.ended


def _certain_of_push(view: View, subscription: SubscriptionView, receipt: Receipt) -> Iterator[_Certain]:
    receive, deadline = receipt.receive, subscription.subscription.ack_deadline
    until = receive.ended + SETTLING_SECONDS
    late = receive.ended - receipt.since > deadline - SETTLING_SECONDS
    if receive.status is None or late or view.fault_between(receive.began - SETTLING_SECONDS, until):
        return
    yield "ACKED" if receive.status in SUCCESSES else "NACKED", receipt.number, receive.ended, until


def _surely_changed(subscription: SubscriptionView, receipt: Receipt, number: int, settle: Settle) -> bool:
    """Of a key one change may take others along, or be taken along."""
    if subscription.subscription.ordered and receipt.delivery.key:
        return False
    if settle.outcome != "ok" or receipt.delivery.ack_id in settle.refused:
        return False
    if any(began <= settle.ended for _, began in receipt.possible_acks):
        return False
    nacks = (other for _, other in receipt.settles if other is not settle and other.seconds == 0)
    if any(other.began <= settle.ended for other in nacks):
        return False
    alive = live_until(subscription, receipt, settle.ended, but=number)
    return alive > settle.ended + CLOCK_SLACK_SECONDS


def _is_it(reported: Reported, event: str, receipt: Receipt) -> bool:
    if reported.event != event or receipt.delivery.attempt not in (None, reported.attempt):
        return False
    status = receipt.receive.status
    if receipt.receive.how != "push" or event == "HANDED_OUT":
        return True
    return reported.answer.startswith(f"{status}" if status in SUCCESSES else f"push {status}")


def check_nothing_else_is_told(view: View) -> Iterator[Violation]:
    """No ack, nack or new deadline is told that nobody can have asked for, nor what never happens in a run."""
    for subscription, number, message_id, reported in _stories(view):
        receipts = subscription.receipts.get(message_id, [])
        for each in reported:
            of_it = [receipt for receipt in receipts if receipt.delivery.attempt in (None, each.attempt)]
            if not _may_have_been(view, subscription, message_id, each, of_it):
                where = f"{subscription.name}: {message_id}: {each.event} {each.attempt}: {_short(reported)}"
                yield violation("told, and not done", where, [number])


def _may_have_been(
    view: View, subscription: SubscriptionView, message_id: int, reported: Reported, receipts: list[Receipt]
) -> bool:
    if reported.event == "REDRIVEN":
        return subscription.subscription.redriven
    if reported.event in _NEVER or not subscription.subscription.includes(reported.event, reported.attempt):
        return False
    if reported.event == "ACKED":
        if reported.answer == "discarded":
            return any(message_id in discard.ids for _, discard in subscription.discards)
        return any(may_have_acked(view, receipt) for receipt in receipts)
    is_change = reported.event in ("NACKED", "EXTENDED") and reported.answer[:4] != "push"
    if not is_change or subscription.subscription.ordered:
        return True
    return any(_asked_for(reported, settle) for receipt in receipts for _, settle in receipt.settles)


def _asked_for(reported: Reported, settle: Settle) -> bool:
    if settle.seconds is None or settle.outcome == "failed":
        return False
    return (settle.seconds == 0) == (reported.event == "NACKED")


def _stories(view: View) -> Iterator[tuple[SubscriptionView, int, int, list[Reported]]]:
    for subscription in view.subscriptions.values():
        for number, timeline in subscription.timelines:
            yield subscription, number, timeline.id, timeline.reported


def _short(reported: list[Reported]) -> str:
    return " ".join(f"{each.event} {each.attempt}@{each.at:.2f}" for each in reported) or "nothing"
