"""Nothing is lost, forgotten or invented, a publish is whole or absent, ids ascend, and nothing is left at last."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.faults.checks.acks import may_have_acked
from tests.faults.checks.view import (
    DEAD_LETTER_ID,
    DEAD_LETTER_MARKS,
    DEAD_LETTER_REASON,
    DEAD_LETTER_REASONS,
    SubscriptionView,
    View,
)
from tests.faults.checks.violation import Violation, violation
from tests.faults.history import Publish, Receive, shard_of


def check_nothing_is_lost(view: View) -> Iterator[Violation]:
    """Every message whose publish was answered is received by each subscription that wants it, or dead-lettered."""
    for subscription in view.plain_subscriptions():
        seen = subscription.texts().keys() | view.dead_letters(subscription).keys()
        for number, publish in view.publishes:
            if publish.outcome != "ok" or not subscription.wants(publish) or subscription.may_be_purged(publish):
                continue
            lost = [text for text in publish.texts if text not in seen]
            if lost:
                yield violation("lost", f"{subscription.name}: {lost[:5]} were answered and never came", [number])


def check_nothing_is_forgotten(view: View) -> Iterator[Violation]:
    """What was delivered comes again until somebody acks it, or is dead-lettered; after the drain all was acked.

    What used up its attempts is for the check of dead letters, unless it comes back; for what is purged or
    discarded nobody waits.
    """
    for subscription in view.subscriptions.values():
        if subscription.subscription.of_events:  # which go on to come while nobody waits for them any more
            continue
        dead_letters = view.dead_letters(subscription)
        most = None if subscription.subscription.redriven else subscription.subscription.max_attempts
        discarded = {each for _, discard in subscription.discards for each in discard.ids}
        for message_id, receipts in subscription.receipts.items():
            text = receipts[0].delivery.text
            published = view.published.get(text)
            if message_id in discarded or (published and subscription.may_be_purged(published[1])):
                continue
            used_up = most is not None and any(receipt.delivery.attempt == most for receipt in receipts)
            if text in dead_letters or used_up or any(may_have_acked(view, receipt) for receipt in receipts):
                continue
            reported = f"{subscription.name}: {text!r} was never acked, and came no more"
            yield violation("forgotten", reported, [receipt.number for receipt in receipts])


def check_publishes_are_whole(view: View) -> Iterator[Violation]:
    """Of a publish without an answer all messages exist or none, for all; of a refused one none.

    One that breaks the schema of its topic is never stored, answered or not.
    """
    seen = {s.name: s.texts().keys() | view.dead_letters(s).keys() for s in view.plain_subscriptions()}
    for number, publish in view.publishes:
        wanting = [s for s in view.plain_subscriptions() if s.wants(publish) and not s.may_be_purged(publish)]
        there = {s.name: sum(text in seen[s.name] for text in publish.texts) for s in wanting}
        if publish.outcome == "failed" and any(there.values()):
            yield violation("refused, and stored", f"{publish.texts[:5]} came: {there}", [number])
        if publish.breaks_schema and (publish.outcome == "ok" or any(there.values())):
            yield violation("broke its schema", f"{publish.texts[:5]} {publish.outcome}; came: {there}", [number])
        counts = set(there.values())
        if publish.outcome == "unknown" and not (counts <= {0} or counts == {len(publish.texts)}):
            text = f"of {len(publish.texts)} messages like {publish.texts[0]!r} came: {there}"
            yield violation("half a publish", text, [number])


def check_nothing_is_invented(view: View) -> Iterator[Violation]:
    """What is received was published, as it is, in this topic, under one id everywhere, and matches the filter."""
    ids = dict(view.answered)
    for subscription in view.plain_subscriptions():
        for number, receive in subscription.receives:
            yield from _inventions(view, subscription, number, receive, ids)
    for subscription in view.subscriptions.values():
        if subscription.subscription.topic in view.dead_letter_topics:
            for number, receive in subscription.receives:
                yield from _invented_dead_letters(view, subscription, number, receive)


def _inventions(
    view: View, subscription: SubscriptionView, number: int, receive: Receive, ids: dict[str, int]
) -> Iterator[Violation]:
    if len({delivery.id for delivery in receive.deliveries}) < len(receive.deliveries):
        yield violation("twice in a response", subscription.name, [number])
    for delivery in receive.deliveries:
        of, publish = view.published.get(delivery.text, (None, None))
        where = f"{subscription.name}: {delivery.text!r} as {delivery.id}"
        if of is None or publish is None:
            yield violation("invented", f"{where}: nobody published it", [number])
            continue
        if not subscription.wants(publish):
            yield violation("invented", f"{where}: it is not for this subscription", [of, number])
        if (delivery.key, delivery.attributes) != (publish.key, publish.attributes):
            reported = f"{delivery.key!r}, {delivery.attributes}"
            yield violation(
                "changed", f"{where}: {reported} was {publish.key!r}, {publish.attributes}", [of, number]
            )
        if ids.setdefault(delivery.text, delivery.id) != delivery.id:
            yield violation("changed", f"{where}: its id is {ids[delivery.text]}", [of, number])


def _invented_dead_letters(
    view: View, subscription: SubscriptionView, number: int, receive: Receive
) -> Iterator[Violation]:
    for delivery in receive.deliveries:
        of, publish = view.published.get(delivery.text, (None, None))
        kept = {k: v for k, v in delivery.attributes.items() if not k.startswith(DEAD_LETTER_MARKS)}
        if of is None or publish is None:
            yield violation("invented", f"{subscription.name}: dead letter {delivery.text!r}", [number])
        elif (delivery.key, kept) != (publish.key, publish.attributes):
            text = f"{subscription.name}: dead letter {delivery.text!r}: {delivery.key!r}, {kept}"
            yield violation("changed", text, [of, number])
        elif (reported := _told_wrongly(delivery.attributes, publish, delivery.text)) is not None:
            yield violation(
                "changed", f"{subscription.name}: dead letter {delivery.text!r}: {reported}", [of, number]
            )


def _told_wrongly(attributes: Mapping[str, str], publish: Publish, text: str) -> str | None:
    """What a dead letter says of its message that is not so."""
    reason = attributes.get(DEAD_LETTER_REASON, "unknown")
    if DEAD_LETTER_REASONS.fullmatch(reason) is None:
        return f"{DEAD_LETTER_REASON} is {reason!r}"
    source = attributes.get(DEAD_LETTER_ID)
    if source is None or publish.outcome != "ok" or len(publish.ids) != len(publish.texts):
        return None
    published = publish.ids[publish.texts.index(text)]
    return None if source == str(published) else f"{DEAD_LETTER_ID} is {source}, not {published}"


def check_ids(view: View) -> Iterator[Violation]:
    """Ids of answered publishes are all different, and ascend in the order of each publisher in each shard."""
    given: dict[int, int] = {}
    by_publisher: dict[tuple[str, str, int], tuple[int, int]] = defaultdict(lambda: (-1, -1))
    for number, publish in sorted(view.publishes, key=lambda pair: pair[1].began):
        if publish.outcome != "ok":
            continue
        if len(publish.ids) != len(publish.texts):
            yield violation("ids", f"{len(publish.ids)} ids of {len(publish.texts)} messages", [number])
        for text, message_id in zip(publish.texts, publish.ids, strict=False):
            stream = (publish.who, publish.topic, shard_of(message_id))
            last, of = by_publisher[stream]
            if message_id <= last:
                numbers = [of, number] if of != number else [number]
                yield violation("ids", f"{publish.who}: {text!r} is {message_id}, after {last}", numbers)
            by_publisher[stream] = max((last, of), (message_id, number))
            other = given.setdefault(message_id, number)
            if other != number:
                yield violation("ids", f"{message_id} was given twice", [other, number])


def check_nothing_is_left(view: View) -> Iterator[Violation]:
    """After the drain somebody looked, and there was nothing, but for events."""
    for subscription in view.subscriptions.values():
        if subscription.subscription.of_events:
            continue
        final = [(number, p) for number, p in subscription.positions if p.final]
        if not final:
            yield violation("backlog", f"{subscription.name}: nobody looked after the drain")
            continue
        number, position = final[-1]
        left = (position.undelivered, position.outstanding)
        if left != (0, 0):
            yield violation("backlog", f"{subscription.name}: {left[0]} left, {left[1]} outstanding", [number])
