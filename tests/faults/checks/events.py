"""What the broker tells an operator: once for each cause, and never of who listens to it (F4)."""

import json
from collections import defaultdict
from collections.abc import Iterator

from tests.faults.checks.attempts import CHECK_SECONDS
from tests.faults.checks.view import Receipt, SubscriptionView, View
from tests.faults.checks.violation import Violation, violation

# The kinds by the type of what begins, and of what ends it or goes on.
_BEGINS = {
    "pubsub.push.failing": "endpoint",
    "pubsub.push.paused": "pause",
    "pubsub.deadLetters.first": "dead letters",
    "pubsub.subscription.ageReached": "age",
    "pubsub.subscription.backlogReached": "backlog",
}
_ENDS = {
    "pubsub.push.recovered": ("endpoint",),
    "pubsub.push.resumed": ("pause",),
    "pubsub.subscription.caughtUp": ("age", "backlog"),
}
_GROWS = "pubsub.deadLetters.growing"
DEAD_LETTERS_SECONDS = 15.0 + 2 * 5.0 + CHECK_SECONDS  # after a dead letter, within which it is told


def check_events(view: View) -> Iterator[Violation]:
    """None about a subscription of their own topic; one for each beginning and end, in turns; each under one id."""
    for listener in view.subscriptions.values():
        if not listener.subscription.of_events:
            continue
        own = {other.name for other in view.of_topic(listener.subscription.topic)}
        reported: dict[int, Receipt] = {}
        for receipts in listener.receipts.values():
            event = receipts[0]
            number = int(event.delivery.attributes["ce-id"])
            if _subject(event) in own:
                yield violation("an event about events", event.delivery.text, [event.number])
            if reported.setdefault(number, event).delivery.text != event.delivery.text:
                yield violation(
                    "an event that changed", event.delivery.text, [reported[number].number, event.number]
                )
        yield from _in_turns([reported[number] for number in sorted(reported)])


def _in_turns(events: list[Receipt]) -> Iterator[Violation]:
    holds: dict[tuple[str, str], int] = defaultdict(int)  # the amount, 0: not so
    for event in events:
        kind, subject = event.delivery.attributes["ce-type"], _subject(event)
        amount = json.loads(event.delivery.text).get("count", 1)
        if kind in _BEGINS:
            if holds[_BEGINS[kind], subject]:
                yield violation("two events of a cause", event.delivery.text, [event.number])
            holds[_BEGINS[kind], subject] = amount
        elif kind == _GROWS:
            before, holds["dead letters", subject] = holds["dead letters", subject], amount
            if not before or len(str(amount)) <= len(str(before)):
                yield violation("two events of a cause", event.delivery.text, [event.number])
        elif kind in _ENDS:
            which = [each for each in _ENDS[kind] if holds[each, subject]]
            if not which:
                yield violation("two events of a cause", event.delivery.text, [event.number])
            for each in which[:1]:
                holds[each, subject] = 0


def check_dead_letters_are_told_of(view: View) -> Iterator[Violation]:
    """That there is one, if enough of the run was left to tell it, and the broker was well for so long."""
    listeners = [each for each in view.subscriptions.values() if each.subscription.of_events]
    reported = {
        _subject(receipts[0])
        for listener in listeners
        for receipts in listener.receipts.values()
        if receipts[0].delivery.attributes["ce-type"] == "pubsub.deadLetters.first"
    }
    for subscription in view.plain_subscriptions() if listeners else ():
        dead_letters = [
            dead_letter for copies in view.dead_letters(subscription).values() for dead_letter in copies
        ]
        if not dead_letters or subscription.name in reported:
            continue
        first = min(dead_letters, key=lambda dead_letter: dead_letter.received)
        healed = max((fault.ended for _, fault in view.faults), default=0.0)
        if _looked_last(listeners[0]) > max(first.received, healed) + DEAD_LETTERS_SECONDS:
            yield violation("an event that is missing", f"the dead letters of {subscription.name}", [first.number])


def _looked_last(listener: SubscriptionView) -> float:
    return max((position.began for _, position in listener.positions), default=0.0)


def _subject(event: Receipt) -> str:
    """The subscription's name, as it is in the history."""
    return event.delivery.attributes["ce-subject"].rpartition("/")[2]
