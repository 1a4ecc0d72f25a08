"""What operators do to messages is exact (G1, G2): a redrive, a discard, a purge.

A redriven message comes to its subscription alone, under its first id: that it comes to nobody else is for the
check of acks to say, that its id is the same for that of inventions, and that it comes at all for that of what is
forgotten.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from tests.faults.checks.attempts import most_lost
from tests.faults.checks.view import Receipt, SubscriptionView, View, ended_late
from tests.faults.checks.violation import Violation, violation
from tests.faults.history import Redrive

Life = list[Receipt]  # of a message, from when it came or came back until it was given up


def check_redriven_attempts(view: View) -> Iterator[Violation]:
    """They are counted from 1 again only by a redrive, and only of what had used them up."""
    for subscription in _redriven(view):
        most = subscription.subscription.max_attempts or 0
        for receipts in subscription.receipts.values():
            where = f"{subscription.name}: {receipts[0].delivery.text!r}"
            for receipt in receipts:
                if not 1 <= _attempt(receipt) <= most:
                    reported = f"{where}: attempt {receipt.delivery.attempt} of {most}"
                    yield violation("attempts", reported, [receipt.number])
            for earlier, later in combinations(receipts, 2):
                if _began_anew(earlier, later) and not _between(subscription, earlier, later):
                    reported = (
                        f"{where}: attempt {_attempt(later)} after {_attempt(earlier)}, and nobody redrove it"
                    )
                    yield violation("began anew", reported, [earlier.number, later.number])
            yield from _early(view, subscription, receipts)


def _early(view: View, subscription: SubscriptionView, receipts: Sequence[Receipt]) -> Iterator[Violation]:
    most = subscription.subscription.max_attempts or 0
    published = view.published.get(receipts[0].delivery.text)
    since = published[1].began if published else 0.0
    for life, after in pairwise(lives(receipts)):
        if most - len({*map(_attempt, life)}) > most_lost(view, subscription, since, after[0].received):
            reported = (
                f"{subscription.name}: {life[0].delivery.text!r} came back after {len(life)} attempts of {most}"
            )
            yield violation("redriven early", reported, [receipt.number for receipt in (*life, after[0])])
        since = life[-1].since


def lives(receipts: Sequence[Receipt]) -> list[Life]:
    """One, if it is not certain where it began anew."""
    found: list[Life] = []
    for receipt in receipts:
        last = found[-1][-1] if found else None
        if last is None or _began_anew(last, receipt):
            found.append([])
        elif _attempt(receipt) <= _attempt(last):
            return [list(receipts)]
        found[-1].append(receipt)
    return found


def _began_anew(earlier: Receipt, later: Receipt) -> bool:
    return earlier.received < later.since and _attempt(later) <= _attempt(earlier)


def _between(subscription: SubscriptionView, earlier: Receipt, later: Receipt) -> list[Redrive]:
    return subscription.redrives_between(earlier.since, later.received)


def _attempt(receipt: Receipt) -> int:
    return receipt.delivery.attempt or 0


def _redriven(view: View) -> list[SubscriptionView]:
    return [each for each in view.subscriptions.values() if each.subscription.redriven]


def check_redrive_counts(view: View) -> Iterator[Violation]:
    """As many came back as the redrives say: no fewer than were seen to, and as many as the journal tells."""
    for subscription in _redriven(view):
        seen = {redrive.name: len(by) for redrive, by in _certain(subscription)}
        counted = 0
        for number, redrive in subscription.redrives:
            redriven = redrive.counts.get("redriven", 0)
            counted += redriven
            where = f"{subscription.name}: {redrive.name}: {redrive.counts}"
            if redriven < seen.get(redrive.name, 0):
                yield violation("redrive counts", f"{where}; {seen[redrive.name]} came back", [number])
            if redrive.counts.keys() - {"redriven"}:
                yield violation("redrive counts", f"{where}; nobody had their letters", [number])
            if redrive.done != sum(redrive.counts.values()):
                yield violation("redrive counts", f"{where}; {redrive.done} done", [number])
        reported = sum(
            each.event == "REDRIVEN" for _, timeline in subscription.timelines for each in timeline.reported
        )
        if subscription.timelines and reported != counted:
            text = f"{subscription.name}: {reported} are told of, {counted} were counted"
            yield violation("redrive counts", text, [number for number, _ in subscription.redrives])


def _certain(subscription: SubscriptionView) -> Iterator[tuple[Redrive, dict[int, Life]]]:
    """Of each redrive, what it and no other brought back: the lives that began with it, by id."""
    found: dict[str, dict[int, Life]] = defaultdict(dict)
    for message_id, receipts in subscription.receipts.items():
        for before, after in pairwise(lives(receipts)):
            by = _between(subscription, before[-1], after[0])
            if len(by) == 1:
                found[by[0].name][message_id] = after
    yield from ((redrive, found[redrive.name]) for _, redrive in subscription.redrives)


def check_redriven_order(view: View) -> Iterator[Violation]:
    """What comes back of an ordering key comes in its order, one when the one before is settled."""
    for subscription in _redriven(view):
        if not subscription.subscription.ordered:
            continue
        discarded = {each for _, discard in subscription.discards for each in discard.ids}
        for _, came_back in _certain(subscription):
            keys: dict[str, list[int]] = defaultdict(list)
            for message_id in sorted(came_back.keys() - discarded):
                keys[came_back[message_id][0].delivery.key].append(message_id)
            for key in keys.keys() - {""}:
                for first, second in combinations(keys[key], 2):
                    yield from _in_order(view, subscription, came_back[first], came_back[second])


def _in_order(view: View, subscription: SubscriptionView, first: Life, second: Life) -> Iterator[Violation]:
    where = f"{subscription.name}: {second[0].delivery.text!r} of {second[0].delivery.key!r}"
    if _attempt(first[0]) == 1 and second[0].received < first[0].since:
        reported = f"{where} came back before {first[0].delivery.text!r}"
        yield violation("redriven order", reported, [second[0].number, first[0].number])
    together = {receipt.number for receipt in first}
    for later in second:
        before = [receipt for receipt in first if receipt.received < later.since]
        if later.number not in together and before and not _may_be_settled(view, subscription, first, later):
            reported = f"{where} came while {first[0].delivery.text!r} was open"
            yield violation("redriven order", reported, [before[-1].number, later.number])


def _may_be_settled(view: View, subscription: SubscriptionView, first: Life, later: Receipt) -> bool:
    """By an ack, or because it was given up once more."""
    had = [receipt for receipt in first if receipt.received <= later.received]
    if any(began <= later.received for receipt in had for _, began in receipt.possible_acks):
        return True
    lost = most_lost(view, subscription, had[0].since, later.received)
    return max(map(_attempt, had)) + lost >= (subscription.subscription.max_attempts or 0)


def check_discards(view: View) -> Iterator[Violation]:
    """What was answered to be discarded is not handed out again, redriven or not."""
    for subscription in view.subscriptions.values():
        for number, discard in subscription.discards:
            for message_id in discard.ids:
                if discard.outcomes.get(str(message_id)) != "discarded":
                    continue
                for receipt in subscription.receipts.get(message_id, ()):
                    if receipt.since > discard.ended:
                        text = f"{subscription.name}: {receipt.delivery.text!r} was discarded, and came again"
                        yield violation("discarded, and came", text, [number, receipt.number])


def check_purges(view: View) -> Iterator[Violation]:
    """What was published before a purge does not come after it."""
    for subscription in view.subscriptions.values():
        for number, purge in subscription.purges:
            for receipts in subscription.receipts.values() if purge.outcome == "ok" else ():
                of, publish = view.published.get(receipts[0].delivery.text, (None, None))
                if of is None or publish is None or ended_late(publish) >= purge.began:
                    continue
                for receipt in receipts:
                    if receipt.since > purge.ended:
                        text = f"{subscription.name}: {receipt.delivery.text!r} was purged, and came"
                        yield violation("purged, and came", text, [of, number, receipt.number])
