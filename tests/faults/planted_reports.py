"""Faults to plant in what a correct broker tells of what it does, and the rule that each of them breaks."""

import json
import random
from collections.abc import Callable, Iterator, Mapping

from tests.faults.checks import journal
from tests.faults.checks.events import DEAD_LETTERS_SECONDS
from tests.faults.checks.view import Receipt, SubscriptionView, View
from tests.faults.history import Delivery, Publish, Receive, Reported, Timeline

Plant = Callable[[View, random.Random], bool]


def _stories(view: View, *names: str) -> list[tuple[SubscriptionView, Timeline]]:
    return [
        (subscription, timeline)
        for subscription in view.subscriptions.values()
        if subscription.name in names or (not names and subscription.subscription.tells_all)
        for _, timeline in subscription.timelines
    ]


def _certain(view: View, event: str, *names: str) -> Iterator[tuple[Timeline, Reported]]:
    """What is told of this kind, and must be."""
    for subscription, timeline in _stories(view, *names):
        for receipt in subscription.receipts.get(timeline.id, ()):
            for certain, _, since, until in journal._certain(view, subscription, receipt):
                for reported in timeline.reported if certain == event else ():
                    if journal._is_it(reported, event, receipt) and since - 0.5 <= reported.at <= until + 0.5:
                        yield timeline, reported


def _forget(event: str, *names: str) -> Plant:
    def forget(view: View, dice: random.Random) -> bool:
        certain = list(_certain(view, event, *names))
        if not certain:
            return False
        timeline, reported = dice.choice(certain)
        timeline.reported = [
            each for each in timeline.reported if each.event != event or each.attempt != reported.attempt
        ]
        return True

    forget.__name__ = f"forget_{event.lower()}_of_{'_or_'.join(names)}"
    return forget


def tell_at_another_time(view: View, dice: random.Random) -> bool:
    """The last of a story long after it was."""
    timeline, reported = dice.choice(list(_certain(view, "ACKED", "exact")))
    if timeline.reported[-1] is not reported:
        return False
    reported.at += 100.0
    return True


def tell_twice(view: View, dice: random.Random) -> bool:
    _, timeline = dice.choice(_stories(view))
    timeline.reported.append(timeline.reported[-1])
    return True


def tell_out_of_order(view: View, dice: random.Random) -> bool:
    _, timeline = dice.choice(_stories(view))
    timeline.reported.reverse()
    return True


def tell_of_another_attempt(view: View, dice: random.Random) -> bool:
    _, timeline = dice.choice(_stories(view))
    dice.choice(timeline.reported).attempt += 1
    return True


def tell_times_that_go_back(view: View, dice: random.Random) -> bool:
    _, timeline = dice.choice(_stories(view))
    timeline.reported[0].at = timeline.reported[-1].at + 1.0
    return True


def go_on_after_the_end(view: View, dice: random.Random) -> bool:
    """What is acked is handed out once more."""
    _, timeline = dice.choice(_stories(view, "exact", "pushed"))
    last = timeline.reported[-1]
    again = [Reported(last.at, "HANDED_OUT", last.attempt + 1), Reported(last.at, "ACKED", last.attempt + 1)]
    timeline.reported += again
    return True


def tell_an_ack_of_nobody(view: View, dice: random.Random) -> bool:
    """A dead letter is said to have been acked."""
    ends = [
        timeline.reported
        for _, timeline in _stories(view, "dead")
        if timeline.reported[-1].event == "DEAD_LETTERED"
    ]
    if not ends:
        return False
    dice.choice(ends)[-1].event = "ACKED"
    return True


def tell_a_nack_of_nobody(view: View, dice: random.Random) -> bool:
    """An ack deadline that passed is said to have been a nack."""
    for subscription, timeline in _stories(view, "dead"):
        for place, (reported, after) in enumerate(zip(timeline.reported, timeline.reported[1:], strict=False)):
            receipts = [
                r for r in subscription.receipts.get(timeline.id, ()) if r.delivery.attempt == reported.attempt
            ]
            if reported.event == after.event == "HANDED_OUT" and not any(receipt.settles for receipt in receipts):
                timeline.reported.insert(place + 1, Reported(after.at, "NACKED", reported.attempt))
                return True
    return False


def tell_that_it_expired(view: View, dice: random.Random) -> bool:
    _, timeline = dice.choice(_stories(view))
    timeline.reported[-1].event = "EXPIRED"
    return True


def tell_of_success(view: View, dice: random.Random) -> bool:
    """In a journal of failures."""
    fine = [timeline for _, timeline in _stories(view, "failing") if not timeline.reported]
    if not fine:
        return False
    dice.choice(fine).reported = [Reported(fine[0].began, "HANDED_OUT", 1), Reported(fine[0].began, "ACKED", 1)]
    return True


def tell_a_part(view: View, dice: random.Random) -> bool:
    """A message of the share, but for how it began."""
    dice.choice([timeline for _, timeline in _stories(view, "sampled") if timeline.reported]).reported.pop(0)
    return True


def tell_of_none(view: View, dice: random.Random) -> bool:
    """A share that is none."""
    for _, timeline in _stories(view, "sampled"):
        timeline.reported = []
    return len(_stories(view, "sampled")) > 30


def leave_a_story_open(view: View, dice: random.Random) -> bool:
    _, timeline = dice.choice(_stories(view))
    timeline.reported.pop()
    return True


def do_not_read(view: View, dice: random.Random) -> bool:
    view.history.operations = [each for each in view.history.operations if not isinstance(each, Timeline)]
    return True


# --- events, schemas ---------------------------------------------------------------------------------------------


def _events(view: View) -> list[Receipt]:
    return [receipts[0] for receipts in view.subscriptions["events"].receipts.values()]


def _told_again(view: View, **changes: str) -> bool:
    """The first event, as another message, with these attributes."""
    events = sorted(_events(view), key=lambda event: event.id)
    if not events:
        return False
    first = events[0].delivery
    again = Delivery(first.id + 10**9, first.text, "again", attributes=first.attributes | changes)
    at = events[0].receive.ended
    view.history.add(Receive(who="planted", began=at, ended=at, subscription="events", deliveries=[again]))
    return True


def tell_of_those_who_listen(view: View, dice: random.Random) -> bool:
    return _told_again(view, **{"ce-id": "4711", "ce-subject": "p/s/events"})


def tell_a_cause_twice(view: View, dice: random.Random) -> bool:
    return _told_again(view, **{"ce-id": "4711"})


def tell_an_end_without_a_beginning(view: View, dice: random.Random) -> bool:
    return _told_again(view, **{"ce-id": "4711", "ce-type": "pubsub.push.recovered"})


def tell_other_things_under_one_id(view: View, dice: random.Random) -> bool:
    if not _told_again(view):
        return False
    last = view.history.operations[-1]
    assert isinstance(last, Receive)
    last.deliveries[0].text = json.dumps({"count": 1, "other": True})
    return True


def tell_of_no_dead_letters(view: View, dice: random.Random) -> bool:
    dead_letters = [r for copies in view.dead_letters(view.subscriptions["dead"]).values() for r in copies]
    checked = view.subscriptions["events"].positions[-1][1].began
    if (
        not dead_letters
        or min(dead_letter.received for dead_letter in dead_letters) + DEAD_LETTERS_SECONDS >= checked
    ):
        return False
    for _, receive in view.subscriptions["events"].receives:
        receive.deliveries = []
    return True


def _broken(view: View) -> list[Publish]:
    return [publish for _, publish in view.publishes if publish.breaks_schema]


def answer_what_broke_its_schema(view: View, dice: random.Random) -> bool:
    if not (broken := _broken(view)):
        return False
    dice.choice(broken).outcome = "ok"
    return True


def store_what_broke_its_schema(view: View, dice: random.Random) -> bool:
    """Without an answer."""
    if not (broken := _broken(view)):
        return False
    publish = dice.choice(broken)
    publish.outcome = "unknown"
    stored = [Delivery(10**18 + n, text, f"s{n}", publish.key) for n, text in enumerate(publish.texts)]
    at = publish.ended + 1
    view.history.add(Receive(who="planted", began=at, ended=at, subscription="shaped", deliveries=stored))
    return True


# By the rule that must be named.
PLANTS_TOLD: Mapping[Plant, str] = {
    _forget("HANDED_OUT", "exact", "dead"): "not told",
    _forget("HANDED_OUT", "pushed"): "not told",
    _forget("ACKED", "exact"): "not told",
    _forget("ACKED", "dead"): "not told",
    _forget("ACKED", "pushed"): "not told",
    _forget("NACKED", "exact", "dead"): "not told",
    _forget("NACKED", "pushed"): "not told",
    _forget("EXTENDED", "exact", "dead"): "not told",
    tell_at_another_time: "not told",
    tell_twice: "told wrongly",
    tell_out_of_order: "told wrongly",
    tell_of_another_attempt: "told wrongly",
    tell_times_that_go_back: "told wrongly",
    go_on_after_the_end: "told wrongly",
    tell_an_ack_of_nobody: "told, and not done",
    tell_a_nack_of_nobody: "told, and not done",
    tell_that_it_expired: "told, and not done",
    tell_of_success: "told, and not done",
    _forget("NACKED", "failing"): "not told",
    tell_a_part: "told wrongly",
    tell_of_none: "no share",
    leave_a_story_open: "a story without an end",
    do_not_read: "a story without an end",
    tell_of_those_who_listen: "an event about events",
    tell_a_cause_twice: "two events of a cause",
    tell_an_end_without_a_beginning: "two events of a cause",
    tell_other_things_under_one_id: "an event that changed",
    tell_of_no_dead_letters: "an event that is missing",
    answer_what_broke_its_schema: "broke its schema",
    store_what_broke_its_schema: "broke its schema",
}
