"""Delivery attempts are counted, and what used them up is dead-lettered once."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from tests.faults.checks.acks import sure_acks
from tests.faults.checks.view import DEAD_LETTER_COUNT, LATE_SECONDS, Receipt, SubscriptionView, View, overlapping
from tests.faults.checks.violation import Violation, violation

CHECK_SECONDS = 8.0  # so long a look for messages may take, and the ack deadline counts from its begin
RESENT_SECONDS = 1.0  # after a push without an answer, within which it is sent once more as the same attempt


def check_attempt_numbers(view: View) -> Iterator[Violation]:
    """1, 2, 3 and so on; a number is missing only where a response may have been lost, for an ack deadline."""
    for subscription in view.subscriptions.values():
        terms = subscription.subscription
        if terms.max_attempts is None or terms.redriven:  # whose attempts begin anew
            continue
        for receipts in subscription.receipts.values():
            yield from _numbers(view, subscription, receipts)


def _numbers(view: View, subscription: SubscriptionView, receipts: Sequence[Receipt]) -> Iterator[Violation]:
    most = subscription.subscription.max_attempts or 0
    where = f"{subscription.name}: {receipts[0].delivery.text!r}"
    for receipt in receipts:
        if receipt.delivery.attempt is None or not 1 <= receipt.delivery.attempt <= most:
            reported = f"{where}: attempt {receipt.delivery.attempt} of {most}"
            yield violation("attempts", reported, [receipt.number])
            return
    for earlier, later in combinations(receipts, 2):
        numbers = [earlier.number, later.number]
        if _attempt(earlier) == _attempt(later) and not _resent(earlier, later):
            yield violation("attempts", f"{where}: two attempts are number {_attempt(later)}", numbers)
        if earlier.received < later.since and _attempt(earlier) > _attempt(later):
            reported = f"{where}: attempt {_attempt(later)} after {_attempt(earlier)}"
            yield violation("attempts", reported, numbers)
    in_order = sorted(receipts, key=_attempt)
    published = view.published.get(receipts[0].delivery.text)
    since = published[1].began if published else 0.0
    yield from _missing(view, subscription, f"{where}: the first", since, in_order[0], _attempt(in_order[0]) - 1)
    for before, after in pairwise(in_order):
        gap = _attempt(after) - _attempt(before) - 1
        yield from _missing(view, subscription, f"{where}: after {_attempt(before)}", before.since, after, gap)


def _missing(
    view: View, subscription: SubscriptionView, where: str, since: float, after: Receipt, count: int
) -> Iterator[Violation]:
    """`count` attempts between a time and a receipt were seen by nobody."""
    if count > 0 and count > most_lost(view, subscription, since, after.received):
        reported = f"{where} came {_attempt(after)}, and nothing was lost"
        yield violation("attempts", reported, [after.number])


def most_lost(view: View, subscription: SubscriptionView, since: float, until: float) -> int:
    """How many attempts of one message may have been lost: each is out for a whole ack deadline."""
    faults = [(fault.began, fault.ended + LATE_SECONDS) for _, fault in view.faults]
    lost = overlapping(subscription.lost, since, until) + overlapping(faults, since, until)
    time = until - since + CHECK_SECONDS
    return min(lost, int(time / subscription.subscription.ack_deadline))


def _attempt(receipt: Receipt) -> int:
    return receipt.delivery.attempt or 0


def _resent(earlier: Receipt, later: Receipt) -> bool:
    unanswered = earlier.receive.how == "push" and earlier.receive.status is None
    return unanswered and later.received - earlier.receive.ended < RESENT_SECONDS


def check_dead_letters(view: View) -> Iterator[Violation]:
    """At most one of each message, after as many attempts as allowed; one if they are used up; none if acked."""
    for subscription in view.plain_subscriptions():
        terms = subscription.subscription
        if terms.dead_letter_topic is None or terms.redriven:  # whose dead letters nobody sees
            continue
        dead_letters = view.dead_letters(subscription)
        receipts = {r[0].delivery.text: r for r in subscription.receipts.values()}
        for text, copies in dead_letters.items():
            yield from _dead_letter(view, subscription, text, copies, receipts.get(text, []))
        for text, tried in receipts.items():
            if text not in dead_letters and _used_up(subscription, tried):
                reported = f"{subscription.name}: {text!r} used up its attempts and is no dead letter"
                yield violation("dead letters", reported, [receipt.number for receipt in tried])


def _dead_letter(
    view: View, subscription: SubscriptionView, text: str, copies: Sequence[Receipt], tried: list[Receipt]
) -> Iterator[Violation]:
    numbers = [copy.number for copy in copies]
    where = f"{subscription.name}: {text!r}"
    most = subscription.subscription.max_attempts or 0
    _, publish = view.published.get(text, (None, None))
    if publish is None or not subscription.wants(publish):
        yield violation("dead letters", f"{where} was not for it", numbers)
        return
    if len({copy.id for copy in copies}) > 1:
        yield violation("dead letters", f"{where} was dead-lettered more than once", numbers)
    counts = {copy.delivery.attributes.get(DEAD_LETTER_COUNT) for copy in copies}
    if counts != {str(most)}:
        yield violation("dead letters", f"{where} after {counts} attempts, not {most}", numbers)
    acks = [number for number, _ in sure_acks(subscription, tried)]
    if acks:
        yield violation("dead letters", f"{where} was acked", [*acks, *numbers])
    seen = {_attempt(receipt) for receipt in tried}
    until = min(copy.received for copy in copies)
    if most - len(seen) > most_lost(view, subscription, publish.began, until):
        yield violation("dead letters", f"{where} was seen in attempts {sorted(seen)} only", numbers)


def _used_up(subscription: SubscriptionView, tried: Sequence[Receipt]) -> bool:
    most = subscription.subscription.max_attempts
    acked = any(True for receipt in tried for _ in receipt.possible_acks)
    return not acked and any(_attempt(receipt) == most for receipt in tried)
