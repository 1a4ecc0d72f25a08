"""An ack is for good, and a subscription leases a message to one receiver at a time, for its ack deadline."""

from collections.abc import Iterator
from itertools import chain, combinations

from tests.faults.checks.view import SUCCESSES, Receipt, SeekWindow, SubscriptionView, View
from tests.faults.checks.violation import Violation, violation
from tests.faults.history import Settle

CLOCK_SLACK_SECONDS = 0.25  # between our clock and the database's as several processes track it
SETTLING_SECONDS = 2.0  # within which the answer of a push endpoint is written, unless something is broken


def check_acks_are_final(view: View) -> Iterator[Violation]:
    """No receive that began after an ack had been answered brings the message again, unless a seek restored it."""
    for subscription in view.subscriptions.values():
        for receipts in subscription.receipts.values():
            for number, settle in sure_acks(subscription, receipts):
                for receipt in receipts:
                    if receipt.receive.how == "push" or receipt.began <= settle.ended:
                        continue
                    if not _restored(subscription, receipts, settle, receipt):
                        text = f"{subscription.name}: {receipt.delivery.text!r} was acked, and came again"
                        yield violation("acked, and came again", text, [number, receipt.number])


def _restored(subscription: SubscriptionView, receipts: list[Receipt], settle: Settle, again: Receipt) -> bool:
    return any(
        may_restore(subscription, receipts, seek)
        for seek in subscription.seeks_between(settle.began, again.received)
    )


def may_restore(subscription: SubscriptionView, receipts: list[Receipt], seek: SeekWindow) -> bool:
    """The message may have been unacked when the snapshot was taken that the seek went to."""
    return not surely_acked(subscription, receipts, seek.snapshot_began)


def surely_acked(subscription: SubscriptionView, receipts: list[Receipt], at: float) -> bool:
    """The message was acked by then, and no seek has brought it back since."""
    return any(
        settle.ended <= at
        and not any(
            seek.snapshot_began < at and may_restore(subscription, receipts, seek)
            for seek in subscription.seeks_between(settle.began, at)
        )
        for _, settle in sure_acks(subscription, receipts)
    )


def sure_acks(subscription: SubscriptionView, receipts: list[Receipt]) -> Iterator[tuple[int, Settle]]:
    """The acks that certainly took effect.

    With exactly-once delivery the answer says so.  Otherwise an ack that comes too late is ignored: the lease must
    have been alive when it was answered.  Of a message with an ordering key such an ack counts only when all
    earlier ones of the key are acked; the check of turns looks at those.
    """
    terms = subscription.subscription
    for receipt in receipts:
        for number, settle in receipt.settles:
            if not receipt.acked_by(settle):
                continue
            if terms.exactly_once:
                yield number, settle
            elif not (terms.ordered and receipt.delivery.key):
                alive = live_until(subscription, receipt, settle.began) > settle.ended + CLOCK_SLACK_SECONDS
                if alive and not subscription.seeks_between(receipt.since, settle.ended):
                    yield number, settle


def live_until(subscription: SubscriptionView, receipt: Receipt, at: float, *, but: int = -1) -> float:
    """The time until which the lease certainly lasts, as far as calls until `at` decide; `but` this one.

    It counts from when the message was handed out, which is when it was there to be handed out at the earliest.
    Messages of a key in one response share the lease of the first that is not acked, so only a change that names
    them all certainly moves it.  One that is refused may have been made: the connection to the database broke
    before it said so, and then it was tried again on a lease that had ended by it.
    """
    run = run_of(subscription, receipt)
    until = receipt.since + subscription.subscription.ack_deadline
    changes = {number: settle for other in run for number, settle in other.settles if settle.seconds is not None}
    ack_ids = {other.delivery.ack_id for other in run}
    changes.pop(but, None)
    for settle in sorted(changes.values(), key=lambda settle: settle.began):
        if settle.began > at or settle.outcome == "failed":
            continue
        moved = settle.began + (settle.seconds or 0.0)
        done = set(settle.ack_ids) - settle.refused.keys()
        certain = settle.outcome == "ok" and ack_ids <= done and settle.ended <= min(at, until)
        until = moved if certain else min(until, moved)
    return until


def run_of(subscription: SubscriptionView, receipt: Receipt) -> list[Receipt]:
    """The messages that share its lease: those of its key in its response."""
    if not (subscription.subscription.ordered and receipt.delivery.key):
        return [receipt]
    ack_ids = [d.ack_id for d in receipt.receive.deliveries if d.key == receipt.delivery.key]
    return [subscription.by_ack_id[ack_id] for ack_id in ack_ids]


def check_refusals(view: View) -> Iterator[Violation]:
    """With exactly-once delivery nothing is refused under a lease that lives, unless something was broken then."""
    for subscription in view.subscriptions.values():
        terms = subscription.subscription
        if not terms.exactly_once:
            continue
        for receipt in chain.from_iterable(subscription.receipts.values()):
            for number, settle in receipt.settles if not (terms.ordered and receipt.delivery.key) else ():
                refused = receipt.delivery.ack_id in settle.refused
                if refused and _was_live(subscription, receipt, number, settle) and not _broken(view, settle):
                    text = f"{subscription.name}: {receipt.delivery.text!r} was out, and its change was refused"
                    yield violation("refused in time", text, [receipt.number, number])


def _was_live(subscription: SubscriptionView, receipt: Receipt, number: int, settle: Settle) -> bool:
    acked = any(began <= settle.ended for other, began in receipt.possible_acks if other != number)
    if acked and settle.seconds is not None:  # an ack of what is acked succeeds as long as its lease would last
        return False
    if subscription.seeks_between(receipt.since, settle.ended):
        return False
    return live_until(subscription, receipt, settle.ended, but=number) > settle.ended + CLOCK_SLACK_SECONDS


def _broken(view: View, settle: Settle) -> bool:
    return view.fault_between(settle.began - SETTLING_SECONDS, settle.ended + SETTLING_SECONDS)


def may_have_acked(view: View, receipt: Receipt) -> bool:
    """By somebody's ack of this delivery.  One that is refused may have been made, if something was broken then."""
    acks = (settle for _, settle in receipt.settles if settle.seconds is None)
    return any(True for _ in receipt.possible_acks) or any(_broken(view, settle) for settle in acks)


def check_leases(view: View) -> Iterator[Violation]:
    """A message is never out under two live leases, except where it is pushed: a request may outlast its lease."""
    for subscription in view.subscriptions.values():
        for receipts in subscription.receipts.values():
            for earlier, later in combinations(receipts, 2):
                if earlier.number != later.number and _both_live(subscription, earlier, later):
                    text = f"{subscription.name}: {later.delivery.text!r} came while it was out"
                    yield violation("two leases", text, [earlier.number, later.number])


def _both_live(subscription: SubscriptionView, earlier: Receipt, later: Receipt) -> bool:
    at = later.received
    if "push" in (earlier.receive.how, later.receive.how):
        return False
    if subscription.seeks_between(earlier.since, at):
        return False
    return all(live_until(subscription, one, at) > at + CLOCK_SLACK_SECONDS for one in (earlier, later))


def check_push_repeats(view: View) -> Iterator[Violation]:
    """What an endpoint has taken is pushed again only if something was broken before that was written."""
    for subscription in view.subscriptions.values():
        for receipts in subscription.receipts.values():
            taken = [r for r in receipts if r.receive.how == "push" and r.receive.status in SUCCESSES]
            for first in taken:
                answered, deadline = first.receive.ended, subscription.subscription.ack_deadline
                if answered - first.since > deadline - SETTLING_SECONDS:
                    continue  # late: somebody else may have it by then
                if view.fault_between(first.receive.began - SETTLING_SECONDS, answered + SETTLING_SECONDS):
                    continue
                for again in receipts:
                    if again.received > answered + SETTLING_SECONDS:
                        text = f"{subscription.name}: {again.delivery.text!r} was taken, and came again"
                        yield violation("pushed again", text, [first.number, again.number])
