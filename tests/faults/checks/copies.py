"""A copy of a topic has each message that was there when it was asked for, once, as it is, in the order of keys."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from tests.faults.checks.view import SubscriptionView, View
from tests.faults.checks.violation import Violation, violation
from tests.faults.history import Copy, Publish

Copies = Mapping[str, Sequence[int]]  # the ids under which a text was received, in order


def check_copies(view: View) -> Iterator[Violation]:
    for subscription in view.subscriptions.values():
        if subscription.subscription.copies:
            terms = subscription.subscription
            made = [each for _, each in view.copies if (each.topic, each.target) == (terms.copies, terms.topic)]
            received = _received(subscription)
            yield from _check_contents(view, subscription)
            yield from _check_numbers(view, subscription, made, received)
            yield from _check_order(view, subscription, made, received)


def _received(subscription: SubscriptionView) -> Copies:
    ids: dict[str, list[int]] = defaultdict(list)
    for message_id in sorted(subscription.receipts):
        ids[subscription.receipts[message_id][0].delivery.text].append(message_id)
    return ids


def _check_contents(view: View, subscription: SubscriptionView) -> Iterator[Violation]:
    for receipts in subscription.receipts.values():
        for receipt in receipts:
            delivery = receipt.delivery
            of, publish = view.published.get(delivery.text, (None, None))
            where = f"{subscription.name}: {delivery.text!r}"
            if of is None or publish is None or not _is_meant(subscription, publish):
                yield violation("copied, and not meant", where, [receipt.number])
            elif (delivery.key, delivery.attributes) != (publish.key, publish.attributes):
                reported = f"{where}: {delivery.key!r}, {delivery.attributes}"
                yield violation("changed", reported, [of, receipt.number])


def _is_meant(subscription: SubscriptionView, publish: Publish) -> bool:
    terms = subscription.subscription
    return publish.topic == terms.copies and terms.wanted.items() <= publish.attributes.items()


def _check_numbers(
    view: View, subscription: SubscriptionView, made: Sequence[Copy], received: Copies
) -> Iterator[Violation]:
    for number, publish in view.publishes:
        if not _is_meant(subscription, publish):
            continue
        stored = publish.outcome == "ok"
        least = sum(stored and publish.ended < copy.began and copy.state == "SUCCEEDED" for copy in made)
        most = sum(publish.outcome != "failed" and publish.began <= copy.ended for copy in made)
        wrong = {text: len(received.get(text, ())) for text in publish.texts}
        wrong = {text: count for text, count in wrong.items() if not least <= count <= most}
        if wrong:
            reported = f"{subscription.name}: {wrong}, from {least} to {most} copies were made"
            yield violation("copies", reported, [number])
    there, counted = sum(map(len, received.values())), sum(copy.counts.get("copied", 0) for copy in made)
    if there != counted:
        yield violation("copies", f"{subscription.name}: {there} came, {counted} were counted")
    for copy in made:
        if copy.counts.keys() - {"copied"} or copy.done != sum(copy.counts.values()):
            yield violation("copies", f"{copy.name}: {copy.counts}, {copy.done} done")


def _check_order(
    view: View, subscription: SubscriptionView, made: Sequence[Copy], received: Copies
) -> Iterator[Violation]:
    """Of each copy; one that ended early may have taken only what stands first, which leaves those that match."""
    whole = all(copy.state == "SUCCEEDED" for copy in made)
    keys: dict[str, list[str]] = defaultdict(list)
    for text in sorted(received.keys() & view.answered.keys(), key=view.answered.__getitem__):
        keys[view.published[text][1].key].append(text)
    for key in keys.keys() - {""}:
        for first, second in pairwise(keys[key]):
            ids = list(zip(reversed(received[first]), reversed(received[second]), strict=False))
            alike = len(received[first]) == len(received[second])
            if (whole or alike) and any(one > other for one, other in ids):
                text = f"{subscription.name}: {second!r} of {key!r} stands before {first!r}"
                yield violation("copied order", text)
