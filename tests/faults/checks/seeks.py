"""A seek to a snapshot restores what was unacked when that was taken, and what was published since (A9).

That nothing else comes back is for the check of acks to say: an acked message comes again only if a seek may have
restored it.
"""

from collections.abc import Iterator
from itertools import chain

from tests.faults.checks.view import Receipt, SeekWindow, SubscriptionView, View
from tests.faults.checks.violation import Violation, violation
from tests.faults.history import Publish


def check_seeks_restore(view: View) -> Iterator[Violation]:
    """What a seek certainly made outstanding is received after it, unless another seek may have settled it."""
    for subscription in view.plain_subscriptions():
        for seek in subscription.seeks:
            if seek.sure:
                yield from _not_restored(view, subscription, seek)


def _not_restored(view: View, subscription: SubscriptionView, seek: SeekWindow) -> Iterator[Violation]:
    later = [other for other in subscription.seeks if other is not seek and other.until > seek.began]
    for number, publish in view.publishes:
        if publish.outcome != "ok" or publish.ended > seek.began or not subscription.wants(publish):
            continue
        missing = [
            text
            for text, message_id in zip(publish.texts, publish.ids, strict=False)
            if not _came_back(subscription.receipts.get(message_id, []), publish, seek, later)
        ]
        if missing:
            text = f"{subscription.name}: {missing[:5]} did not come again"
            yield violation("not restored", text, [number, seek.number])


def _came_back(receipts: list[Receipt], publish: Publish, seek: SeekWindow, later: list[SeekWindow]) -> bool:
    """Or need not."""
    if possibly_acked(receipts, seek.snapshot_ended):
        return True
    if any(receipt.received >= seek.began for receipt in receipts):
        return True
    return any(possibly_acked(receipts, other.snapshot_ended) for other in later)


def possibly_acked(receipts: list[Receipt], at: float) -> bool:
    """An ack of the message may have taken effect by then."""
    return any(began <= at for _, began in chain.from_iterable(receipt.possible_acks for receipt in receipts))
