"""Faults to plant in what operators do to messages, and the rule that each of them breaks."""

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import msgspec

from tests.faults.checks.acks import may_have_acked, sure_acks
from tests.faults.checks.acting import _certain, lives
from tests.faults.checks.view import Receipt, SubscriptionView, View
from tests.faults.history import Delivery, Receive, Redrive, Reported

Plant = Callable[[View, random.Random], bool]
_ORDERED = "ordered-redriven"


def _again(receipt: Receipt, view: View, at: float, name: str = "", **changes: str | int | None) -> bool:
    """It is received once more."""
    old = msgspec.structs.replace(receipt.delivery, ack_id=f"planted-{receipt.delivery.ack_id}", **changes)
    where = name or receipt.receive.subscription
    view.history.add(Receive(who="planted", began=at, ended=at + 0.0004, subscription=where, deliveries=[old]))
    return True


def _back(view: View, *names: str) -> Iterator[tuple[SubscriptionView, list[Receipt], list[Receipt]]]:
    """Two lives of a message."""
    for name in names or ("redriven", _ORDERED):
        for receipts in view.subscriptions[name].receipts.values():
            for before, after in pairwise(lives(receipts)):
                yield view.subscriptions[name], before, after


def _take_away(receipts: list[Receipt]) -> None:
    for receipt in receipts:
        receipt.receive.deliveries.remove(receipt.delivery)


def begin_anew(view: View, dice: random.Random) -> bool:
    """Attempts are counted from 1 again, and nobody redrove the message."""
    for subscription in (view.subscriptions["redriven"], view.subscriptions[_ORDERED]):
        for receipts in subscription.receipts.values():
            for receipt in receipts:
                at = receipt.received + 0.01
                if not subscription.redrives_between(receipt.since, at + 0.01):
                    return _again(receipt, view, at, attempt=1)
    return False


def redrive_early(view: View, dice: random.Random) -> bool:
    """What comes back had two attempts of five."""
    for subscription, before, after in _back(view):
        if len(before) == 5 and not any(w[0] < after[0].received for w in subscription.lost):
            _take_away(before[2:])
            return True
    return False


def lose_what_was_redriven(view: View, dice: random.Random) -> bool:
    for subscription, _, after in _back(view):
        receipts = subscription.receipts[after[0].id]
        earlier = receipts[: receipts.index(after[0])]
        discarded = {each for _, discard in subscription.discards for each in discard.ids}
        may_end = after[-1] is receipts[-1] and after[0].id not in discarded
        if may_end and not any(may_have_acked(view, receipt) for receipt in earlier):
            _take_away(after)
            return True
    return False


def redrive_under_another_id(view: View, dice: random.Random) -> bool:
    found = list(_back(view))
    for receipt in dice.choice(found)[2] if found else ():
        receipt.delivery.id += 10**9
    return bool(found)


def redrive_to_everybody(view: View, dice: random.Random) -> bool:
    """What comes back to one comes to another, who had acked it."""
    exact = view.subscriptions["exact"]
    for _, _, after in _back(view):
        receipts = exact.receipts.get(after[0].id, [])
        if any(settle.ended < after[0].since for _, settle in sure_acks(exact, receipts)):
            return _again(receipts[0], view, after[0].received)
    return False


def _redrives(view: View, *names: str) -> list[Redrive]:
    return [each for name in names for _, each in view.subscriptions[name].redrives if each.counts]


def count_one_more(view: View, dice: random.Random) -> bool:
    redrives = _redrives(view, "redriven")
    if redrives:
        redrive = dice.choice(redrives)
        redrive.counts = redrive.counts | {"redriven": redrive.counts.get("redriven", 0) + 1}
        redrive.done += 1
    return bool(redrives)


def count_fewer_than_came(view: View, dice: random.Random) -> bool:
    for redrive, came_back in _certain(view.subscriptions[_ORDERED]):
        if came_back:
            redrive.counts = {"redriven": len(came_back) - 1}
            redrive.done = len(came_back) - 1
            return True
    return False


def count_what_nobody_did(view: View, dice: random.Random) -> bool:
    """Dead letters of a pile that nobody consumes are said to be out."""
    redrives = _redrives(view, _ORDERED)
    if redrives:
        redrive = dice.choice(redrives)
        redrive.counts, redrive.done = redrive.counts | {"outstanding": 1}, redrive.done + 1
    return bool(redrives)


def do_more_than_is_counted(view: View, dice: random.Random) -> bool:
    redrives = _redrives(view, _ORDERED)
    if redrives:
        dice.choice(redrives).done += 1
    return bool(redrives)


def tell_that_it_came_back(view: View, dice: random.Random) -> bool:
    """What was acked is said to have been redriven."""
    stories = [timeline for _, timeline in view.subscriptions["redriven"].timelines if timeline.reported]
    acked = [timeline.reported for timeline in stories if timeline.reported[-1].event == "ACKED"]
    if acked:
        reported = dice.choice(acked)
        reported.insert(-1, Reported(reported[-1].at, "REDRIVEN"))
    return bool(acked)


def _two_of_a_key(view: View) -> Iterator[tuple[list[Receipt], list[Receipt]]]:
    """That one redrive brought back, in their order."""
    discarded = {each for _, discard in view.subscriptions[_ORDERED].discards for each in discard.ids}
    for _, came_back in _certain(view.subscriptions[_ORDERED]):
        for one in sorted(came_back.keys() - discarded):
            for other in sorted(came_back.keys() - discarded):
                first, second = came_back[one], came_back[other]
                if one < other and first[0].delivery.key == second[0].delivery.key != "":
                    yield first, second


def redrive_out_of_order(view: View, dice: random.Random) -> bool:
    befores = {(after[0].number, after[0].id): before[-1] for _, before, after in _back(view, _ORDERED)}
    for first, second in _two_of_a_key(view):
        at, before = first[0].since - 0.03, befores[second[0].number, second[0].id]
        between = view.subscriptions[_ORDERED].redrives_between(before.since, at)
        if first[0].delivery.attempt == 1 and len(between) == 1 and before.received < at:
            return _again(second[0], view, at, attempt=1)
    return False


def come_while_the_one_before_is_open(view: View, dice: random.Random) -> bool:
    for first, second in _two_of_a_key(view):
        if first[0].delivery.attempt == second[0].delivery.attempt == 1:
            came = second[0].received <= first[0].received
            return _again(second[0], view, first[0].received + 0.0002, attempt=2 if came else 1)
    return False


def come_after_a_discard(view: View, dice: random.Random) -> bool:
    for subscription in view.subscriptions.values():
        for _, discard in subscription.discards:
            for message_id in discard.ids if discard.outcomes else ():
                if receipts := subscription.receipts.get(message_id):
                    return _again(receipts[0], view, discard.ended + 0.01)
    return False


def come_after_a_purge(view: View, dice: random.Random) -> bool:
    purged = view.subscriptions["purged"]
    for _, purge in purged.purges:
        for publish in [publish for _, publish in view.publishes if publish.outcome == "ok"]:
            if purge.outcome == "ok" and publish.topic == "topic" and publish.ended < purge.began:
                at, [message_id, *_] = purge.ended + 0.01, publish.ids
                came = Delivery(message_id, publish.texts[0], "planted", publish.key, None, publish.attributes)
                view.history.add(
                    Receive(who="planted", began=at, ended=at, subscription="purged", deliveries=[came])
                )
                return True
    return False


def lose_what_nobody_purged(view: View, dice: random.Random) -> bool:
    purged = view.subscriptions["purged"]
    for _, publish in view.publishes:
        if publish.outcome == "ok" and purged.wants(publish) and not purged.may_be_purged(publish):
            _take_away([receipt for each in publish.ids for receipt in purged.receipts[each]])
            return True
    return False


def _copied(view: View) -> list[list[Receipt]]:
    return list(view.subscriptions["copied"].receipts.values())


def copy_twice(view: View, dice: random.Random) -> bool:
    copied = _copied(view)
    return bool(copied) and _again(dice.choice(copied)[0], view, 10_000.0, id=10**18)


def lose_a_copy(view: View, dice: random.Random) -> bool:
    copied = _copied(view)
    if copied:
        _take_away(dice.choice(copied))
    return bool(copied)


def copy_what_is_not_meant(view: View, dice: random.Random) -> bool:
    common = [publish for _, publish in view.publishes if publish.attributes["kind"] == "common"]
    copied = _copied(view)
    if copied and common:
        copied[0][0].delivery.text = common[0].texts[0]
    return bool(copied and common)


def change_a_copy(view: View, dice: random.Random) -> bool:
    copied = _copied(view)
    for receipt in dice.choice(copied) if copied else ():
        receipt.delivery.attributes = receipt.delivery.attributes | {"planted": "yes"}
    return bool(copied)


def copy_out_of_order(view: View, dice: random.Random) -> bool:
    """Two of a key change places, wherever they came."""
    if any(copy.state != "SUCCEEDED" for _, copy in view.copies) or len(view.copies) != 1:
        return False
    keys: dict[str, list[list[Receipt]]] = {}
    for receipts in _copied(view):
        if receipts[0].delivery.key and receipts[0].delivery.text in view.answered:
            keys.setdefault(receipts[0].delivery.key, []).append(receipts)
    for of_key in keys.values():
        for first, second in pairwise(of_key):
            texts = first[0].delivery.text, second[0].delivery.text
            for receipts, text in ((first, texts[1]), (second, texts[0])):
                for receipt in receipts:
                    receipt.delivery.text = text
                    receipt.delivery.attributes = view.published[text][1].attributes
            return True
    return False


# By the rule that must be named.
PLANTS_ACTS: Mapping[Plant, str] = {
    begin_anew: "began anew",
    redrive_early: "redriven early",
    lose_what_was_redriven: "forgotten",
    redrive_under_another_id: "changed",
    redrive_to_everybody: "acked, and came again",
    count_one_more: "redrive counts",
    count_fewer_than_came: "redrive counts",
    count_what_nobody_did: "redrive counts",
    do_more_than_is_counted: "redrive counts",
    tell_that_it_came_back: "told wrongly",
    redrive_out_of_order: "redriven order",
    come_while_the_one_before_is_open: "redriven order",
    come_after_a_discard: "discarded, and came",
    come_after_a_purge: "purged, and came",
    lose_what_nobody_purged: "lost",
    copy_twice: "copies",
    lose_a_copy: "copies",
    copy_what_is_not_meant: "copied, and not meant",
    change_a_copy: "changed",
    copy_out_of_order: "copied order",
}
