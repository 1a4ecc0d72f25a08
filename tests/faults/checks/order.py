"""The promise of an ordering key (A6).

A message is *settled* when it and all earlier messages of its key are acked (or dead-lettered), so what is settled
is always the beginning of a key.  A message is delivered only when every earlier one of its key is settled, or
stands before it in the same response.  As a delivery of an earlier message proves that it was not settled, no ack
of a later one from before that delivery counts any more: after a nack the later ones come again behind it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.faults.checks.view import Receipt, SubscriptionView, View
from tests.faults.checks.violation import Violation, violation
from tests.faults.history import Receive


@dataclass(frozen=True, slots=True)
class _Key:
    """All there is of a key in a subscription: ids in order, its responses by time, what was dead-lettered."""

    name: str
    ids: Sequence[int]
    responses: Sequence[tuple[int, Receive]]
    dead: frozenset[int]


def check_first_deliveries(view: View) -> Iterator[Violation]:
    """Of a key, messages come for the first time in the order of their ids, which is that of their publishes."""
    for subscription in _ordered(view):
        latest: dict[str, tuple[int, int]] = defaultdict(lambda: (-1, -1))
        seen: set[int] = set()
        for number, receive in subscription.receives:
            for delivery in receive.deliveries:
                if not delivery.key or delivery.id in seen:
                    continue
                seen.add(delivery.id)
                last, of = latest[delivery.key]
                if delivery.id < last:
                    text = f"{subscription.name}: {delivery.text!r} of {delivery.key!r} came first after {last}"
                    yield violation("first deliveries", text, [of, number])
                latest[delivery.key] = max((last, of), (delivery.id, number))


def check_turns(view: View) -> Iterator[Violation]:
    """A message is delivered only when every earlier one of its key is settled or before it in the response."""
    for subscription in _ordered(view):
        if subscription.seeks or subscription.subscription.redriven:  # which brings back what was settled
            continue
        for key in _keys(view, subscription):
            yield from _faults_of_key(subscription, key)


def _ordered(view: View) -> list[SubscriptionView]:
    copied = [s for s in view.subscriptions.values() if s.subscription.copies]
    return [s for s in (*view.plain_subscriptions(), *copied) if s.subscription.ordered]


def _keys(view: View, subscription: SubscriptionView) -> Iterator[_Key]:
    ids: dict[str, set[int]] = defaultdict(set)
    responses: dict[str, list[tuple[int, Receive]]] = defaultdict(list)
    for number, receive in subscription.receives:
        for delivery in receive.deliveries:
            ids[delivery.key].add(delivery.id)
        for key in {delivery.key for delivery in receive.deliveries if delivery.key}:
            responses[key].append((number, receive))
    for _, publish in view.publishes:
        if publish.outcome == "ok" and subscription.wants(publish):
            ids[publish.key].update(publish.ids)
    dead_texts = view.dead_letters(subscription).keys()
    dead = {i for i, receipts in subscription.receipts.items() if receipts[0].delivery.text in dead_texts}
    dead |= {view.answered[text] for text in dead_texts if text in view.answered}
    for key, of_key in responses.items():
        yield _Key(key, sorted(ids[key]), of_key, frozenset(dead))


def _faults_of_key(subscription: SubscriptionView, key: _Key) -> Iterator[Violation]:
    for number, receive in key.responses:
        delivered = [delivery.id for delivery in receive.deliveries if delivery.key == key.name]
        first = bisect_left(key.ids, delivered[0])
        if list(key.ids[first : first + len(delivered)]) != delivered:
            text = f"{subscription.name}: {delivered} of {key.name!r} are not neighbours"
            yield violation("turns", text, [number])
        again = subscription.receipts[delivered[0]]
        mine = next(receipt for receipt in again if receipt.number == number)
        unsettled = _first_unsettled(subscription, key, first, mine)
        if unsettled is not None:
            text = (
                f"{subscription.name}: {mine.delivery.text!r} of {key.name!r} came before {unsettled} was settled"
            )
            numbers = [receipt.number for receipt in subscription.receipts.get(unsettled, ())]
            yield violation("turns", text, [*numbers, number])


def _first_unsettled(subscription: SubscriptionView, key: _Key, count: int, mine: Receipt) -> int | None:
    """Of the first `count` messages one that cannot have been settled when this was handed out."""
    proof = 0.0  # a time at which this message or an earlier one was not settled, before `mine` was handed out
    for message_id in key.ids[:count]:
        deliveries = subscription.receipts.get(message_id, ())
        proof = max([proof, *(d.since for d in deliveries if d.received < mine.since)])
        if message_id not in key.dead and not any(_may_settle(d, proof, mine) for d in deliveries):
            return message_id
    return None


def _may_settle(delivery: Receipt, proof: float, mine: Receipt) -> bool:
    """An ack of this delivery may be why the message was settled when `mine` was handed out."""
    if delivery.received < proof:
        return False
    return any(began <= mine.received for _, began in delivery.possible_acks)
