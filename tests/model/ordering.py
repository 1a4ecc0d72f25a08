"""Ordering keys in the model (A6): what a key's unacked messages, in publish order, do to each other.

One response may carry several messages of a key; the key is then blocked until all of them are settled.  They
share the deadline of the first that is not acked.  What fails brings all later ones of them back, acked or not.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.model.model import Message, Standing, Subscription


def keyed(subscription: "Subscription", message: "Message") -> bool:
    return subscription.options.ordered and bool(message.key)


def queues(subscription: "Subscription") -> dict[str, list["Standing"]]:
    """The unacked messages of each key, in order; one that was acked before its turn is among them."""
    found: dict[str, list[Standing]] = {}
    for standing in sorted(subscription.unacked(), key=lambda s: s.message.number):
        if keyed(subscription, standing.message):
            found.setdefault(standing.message.key, []).append(standing)
    return found


def deliverable(
    subscription: "Subscription", queue: Sequence["Standing"], now: datetime, jitter: float
) -> tuple[set["Message"], set["Message"]]:
    """For sure (the first), and perhaps (those that may come along)."""
    retained = [s for s in queue if subscription.retained(s.message, now)]
    if not retained:
        return set(), set()
    head = retained[0]
    messages = {s.message for s in retained}
    if subscription.used_up(head):
        return set(), messages if subscription.dead_letter_topic_changed else set()
    if head is not queue[0] or not head.sure or not subscription.given_up.isdisjoint(queue):
        return set(), messages
    if subscription.ready_at(head, jitter) > now:
        return set(), set()
    return {head.message}, messages - {head.message}


def check_run(
    subscription: "Subscription", key: str, run: Sequence["Message"], now: datetime, *, alone: bool
) -> None:
    """Whether these messages of a key may go out together.  `alone`: a message that failed before must."""
    rest = list(run)
    queue = [s for s in queues(subscription)[key] if subscription.retained(s.message, now)]
    for standing in queue:
        if rest and rest[0] is standing.message:
            rest.pop(0)
        elif rest and standing.sure:
            raise AssertionError(f"{subscription.name}: {list(run)} of key {key} in the place of {queue}")
    assert not rest, f"{subscription.name}: {list(run)} of key {key} out of order"
    if alone and subscription.standings[run[0]].attempts:
        assert len(run) == 1, f"{run} together, though {run[0]} failed before"


def begin_run(subscription: "Subscription", key: str, now: datetime) -> None:
    """All that was out of the key has come back."""
    for standing in queues(subscription)[key]:
        _come_back(standing, now)


def _come_back(standing: "Standing", due: datetime) -> None:
    standing.out, standing.ack_id, standing.early, standing.due = False, None, False, due


def settle(subscription: "Subscription", key: str, now: datetime) -> None:
    """Acks count once all earlier ones of the key do."""
    for standing in queues(subscription).get(key, ()):
        if not standing.early:
            if standing.sure and subscription.retained(standing.message, now):
                break
            continue
        standing.acked, standing.early = True, False


def is_early(subscription: "Subscription", standing: "Standing", named: Iterable[str], now: datetime) -> bool:
    """Whether an earlier message of the key is neither acked nor named in the same call."""
    names = set(named)
    for earlier in queues(subscription)[standing.message.key]:
        if earlier is standing:
            return False
        if earlier.ack_id not in names and earlier.sure and subscription.retained(earlier.message, now):
            return True
    raise AssertionError(f"{standing} is acked")


def modify_ack_deadline(
    subscription: "Subscription", named: Sequence["Standing"], seconds: int, now: datetime, jitter: float
) -> None:
    """`named`: messages of one key that are out."""
    out = [s for s in queues(subscription)[named[0].message.key] if s.out]
    hit = [s for s in out if s in named and not s.early]
    if not hit:
        return
    if seconds == 0:
        first = hit[0]
        for standing in out[out.index(first) :]:
            _come_back(standing, now)
        first.due = now + subscription.delay(first.attempts, jitter)
    elif hit[0] is out[0]:
        for standing in out:
            standing.due = now + timedelta(seconds=seconds)
