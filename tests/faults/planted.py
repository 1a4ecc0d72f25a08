"""Faults to plant in a correct history.  Each changes it in place, and says whether it found a place."""

import random
from collections.abc import Callable
from itertools import chain

from tests.faults.checks.acks import CLOCK_SLACK_SECONDS, live_until, sure_acks
from tests.faults.checks.view import DEAD_LETTER_SOURCE, LATE_SECONDS, Receipt, SubscriptionView, View
from tests.faults.history import Delivery, Publish, Receive, Settle

Plant = Callable[[View, random.Random], bool]


def _receipts(view: View, *names: str) -> list[tuple[SubscriptionView, Receipt]]:
    return [
        (subscription, receipt)
        for subscription in view.subscriptions.values()
        if not names or subscription.name in names
        for receipt in chain.from_iterable(subscription.receipts.values())
    ]


def _answered(view: View) -> list[Publish]:
    return [publish for _, publish in view.publishes if publish.outcome == "ok"]


def _again(receipt: Receipt, view: View, at: float, **changes: str | int | None) -> None:
    """The message is received once more."""
    old = receipt.delivery
    reported = {
        "id": old.id,
        "text": old.text,
        "key": old.key,
        "attempt": old.attempt,
        "attributes": old.attributes,
    }
    delivery = Delivery(ack_id=f"planted-{old.ack_id}", **(reported | changes))  # type: ignore[arg-type]
    where = receipt.receive.subscription
    view.history.add(Receive(who="planted", began=at, ended=at + 0.01, subscription=where, deliveries=[delivery]))


def lose(view: View, dice: random.Random) -> bool:
    """A subscription never gets a message."""
    publish = dice.choice(_answered(view))
    text = dice.choice(publish.texts)
    for _, receive in view.subscriptions["exact"].receives:
        receive.deliveries = [delivery for delivery in receive.deliveries if delivery.text != text]
    return True


def forget_what_was_refused(view: View, dice: random.Random) -> bool:
    """What an endpoint refused is never pushed again."""
    pushed = _receipts(view, "pushed")
    _, refused = dice.choice(pushed)
    refused.receive.status = 500
    for _, receipt in pushed:
        if receipt.id == refused.id and receipt is not refused:
            receipt.receive.deliveries.remove(receipt.delivery)
    return True


def invent(view: View, dice: random.Random) -> bool:
    _, receipt = dice.choice(_receipts(view))
    receipt.delivery.text += "?"
    return True


def change_key(view: View, dice: random.Random) -> bool:
    _, receipt = dice.choice(_receipts(view))
    receipt.delivery.key += "?"
    return True


def change_attributes(view: View, dice: random.Random) -> bool:
    _, receipt = dice.choice(_receipts(view))
    receipt.delivery.attributes = receipt.delivery.attributes | {"planted": "yes"}
    return True


def store_twice(view: View, dice: random.Random) -> bool:
    _, receipt = dice.choice(_receipts(view, "plain"))
    _again(receipt, view, 10_000.0, id=receipt.delivery.id + 10**9)
    return True


def store_half(view: View, dice: random.Random) -> bool:
    """Of a publish without an answer one message never came."""
    many = [publish for publish in _answered(view) if len(publish.texts) > 1]
    if not many:
        return False
    publish = dice.choice(many)
    publish.outcome, publish.ids = "unknown", []
    for subscription in view.plain_subscriptions():
        for _, receive in subscription.receives:
            receive.deliveries = [d for d in receive.deliveries if d.text != publish.texts[0]]
    for _, receive in view.subscriptions["letters"].receives:
        receive.deliveries = [d for d in receive.deliveries if d.text != publish.texts[0]]
    return True


def store_what_was_refused(view: View, dice: random.Random) -> bool:
    publish = dice.choice(_answered(view))
    publish.outcome, publish.ids = "failed", []
    return True


def swap_ids(view: View, dice: random.Random) -> bool:
    many = [publish for publish in _answered(view) if len(publish.ids) > 1]
    if not many:
        return False
    dice.choice(many).ids.reverse()
    return True


def bring_back_what_was_acked(view: View, dice: random.Random) -> bool:
    sure = [
        (receipts[0], settle)
        for subscription in view.subscriptions.values()
        for receipts in subscription.receipts.values()
        for _, settle in sure_acks(subscription, receipts)
        if not subscription.seeks
    ]
    if not sure:
        return False
    receipt, settle = dice.choice(sure)
    _again(receipt, view, settle.ended + 0.01)
    return True


def lease_twice(view: View, dice: random.Random) -> bool:
    out = [
        receipt
        for subscription, receipt in _receipts(view)
        if receipt.receive.how != "push"
        if live_until(subscription, receipt, receipt.received + 0.1) > receipt.received + 1 + CLOCK_SLACK_SECONDS
    ]
    if not out:
        return False
    receipt = dice.choice(out)
    _again(receipt, view, receipt.received + 0.05)
    return True


def refuse_in_time(view: View, dice: random.Random) -> bool:
    """What was done to a message under its lease is told to have been refused."""
    done = [
        (receipt, settle)
        for subscription, receipt in _receipts(view, "exact")
        for number, settle in receipt.settles[:1]
        if settle.outcome == "ok"
        and not settle.refused
        and live_until(subscription, receipt, settle.ended, but=number) > settle.ended + 1
        and not any(other.began <= settle.ended for _, other in receipt.settles[1:])
    ]
    if not done:
        return False
    receipt, settle = dice.choice(done)
    settle.refused = {receipt.delivery.ack_id: "stale"}
    return True


def refuse_a_repeated_ack(view: View, dice: random.Random) -> bool:
    """What was acked under its lease is acked once more, and that is refused."""
    acked = [
        (receipt, settle)
        for subscription, receipt in _receipts(view, "exact")
        for _, settle in receipt.settles[:1]
        if receipt.acked_by(settle) and live_until(subscription, receipt, settle.ended) > settle.ended + 1
        if not any(other.began <= settle.ended + 0.5 for _, other in receipt.settles[1:])
    ]
    if not acked:
        return False
    receipt, settle = dice.choice(acked)
    ack_id = receipt.delivery.ack_id
    again = Settle(
        who="planted",
        began=settle.ended + 0.1,
        ended=settle.ended + 0.2,
        subscription="exact",
        ack_ids=[ack_id],
        refused={ack_id: "stale"},
    )
    view.history.add(again)
    return True


def overtake(view: View, dice: random.Random) -> bool:
    """The last of a key is there before the first."""
    keys: dict[str, list[Receipt]] = {}
    for _, receipt in _receipts(view, "ordered"):
        if receipt.delivery.key:
            keys.setdefault(receipt.delivery.key, []).append(receipt)
    found = [receipts for receipts in keys.values() if len({r.id for r in receipts}) > 1]
    if not found:
        return False
    receipts = dice.choice(found)
    last = max(receipts, key=lambda receipt: receipt.id)
    first = min(receipt.received for receipt in receipts)
    _again(last, view, first - 0.05)
    return True


def count_wrongly(view: View, dice: random.Random) -> bool:
    _, receipt = dice.choice(_receipts(view, "dead"))
    receipt.delivery.attempt = (receipt.delivery.attempt or 0) + 5
    return True


def skip_an_attempt(view: View, dice: random.Random) -> bool:
    """One of several attempts is left out of the count, and nothing was lost then."""
    for subscription, receipt in _receipts(view, "dead"):
        receipts = subscription.receipts[receipt.id]
        since = view.published[receipt.delivery.text][1].began
        lost = [window for window in subscription.lost if window[0] <= receipt.received and window[1] >= since]
        if receipts[0] is receipt and receipt.delivery.attempt == 1 and len(receipts) == 1 and not lost:
            receipt.delivery.attempt = 2
            return True
    return False


def dead_letter_twice(view: View, dice: random.Random) -> bool:
    dead_letters = _receipts(view, "letters")
    if not dead_letters:
        return False
    _, receipt = dice.choice(dead_letters)
    _again(receipt, view, 10_000.0, id=receipt.delivery.id + 10**9)
    return True


def lose_a_dead_letter(view: View, dice: random.Random) -> bool:
    source = view.subscriptions["dead"]
    texts = sorted(view.dead_letters(source).keys() & source.texts().keys())
    used_up = [
        text
        for text in texts
        for receipts in source.receipts.values()
        if receipts[0].delivery.text == text
        and any(receipt.delivery.attempt == 5 for receipt in receipts)
        and not any(True for receipt in receipts for _ in receipt.possible_acks)
    ]
    if not used_up:
        return False
    text = dice.choice(used_up)
    for _, receive in view.subscriptions["letters"].receives:
        receive.deliveries = [
            d for d in receive.deliveries if d.text != text or d.attributes[DEAD_LETTER_SOURCE] != "dead"
        ]
    return True


def restore_too_little(view: View, dice: random.Random) -> bool:
    """What a seek brought back is not received after it."""
    plain = view.subscriptions["plain"]
    for seek in plain.seeks:
        if not seek.sure or any(other.until > seek.began for other in plain.seeks if other is not seek):
            continue
        for receipts in plain.receipts.values():
            of = view.published[receipts[0].delivery.text][1]
            acked = any(began <= seek.snapshot_ended for r in receipts for _, began in r.possible_acks)
            if acked or of.outcome != "ok" or of.ended > seek.began or receipts[0].received >= seek.began:
                continue
            for receipt in receipts:
                if receipt.received >= seek.began:
                    receipt.receive.deliveries.remove(receipt.delivery)
            return True
    return False


def restore_too_much(view: View, dice: random.Random) -> bool:
    """What was acked before the snapshot of a seek is received after it."""
    plain = view.subscriptions["plain"]
    if not plain.seeks:
        return False
    first = min(seek.snapshot_began for seek in plain.seeks)
    for receipts in plain.receipts.values():
        if any(settle.ended < first for _, settle in sure_acks(plain, receipts)):
            _again(receipts[0], view, max(seek.until for seek in plain.seeks) + LATE_SECONDS)
            return True
    return False


def leave_something(view: View, dice: random.Random) -> bool:
    dice.choice([s for s in view.subscriptions.values() if not s.subscription.of_events]).positions[-1][
        1
    ].undelivered = 1
    return True


PLANTS: tuple[Plant, ...] = (
    lose, forget_what_was_refused, invent, change_key, change_attributes, store_twice, store_half,
    store_what_was_refused, swap_ids,
    bring_back_what_was_acked, lease_twice, refuse_in_time,
    refuse_a_repeated_ack, overtake, count_wrongly, skip_an_attempt,
    dead_letter_twice, lose_a_dead_letter, restore_too_little, restore_too_much, leave_something,
)  # fmt: skip
