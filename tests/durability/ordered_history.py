"""What pullers of ordered and exactly-once subscriptions saw, and what must hold of it.

Every call is noted with the time of its start and of its end, by one clock.  Whatever the broker did for it
happened in between, so "A was before B" is certain only if A ended before B started.  Every check asks for what is
certain.

The promise of an ordering key, as `check_turns` has it.  A message is *settled* when it and all earlier messages of
its key are acked, so what is settled is always the beginning of a key.  A message is delivered only when every
earlier one of its key is settled, or stands before it in the same response.  As a delivery of an earlier message
proves that it was not settled, no ack of a later one from before that delivery counts any more.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations

CLOCK_SLACK_SECONDS = 0.25  # between the clock of the test and the database's as two brokers track it


@dataclass(slots=True)
class Publish:
    """One publish request under one key ("": none).  `ids` is None as long as there is no answer."""

    key: str
    texts: list[str]
    ids: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """An ack (`seconds` is None) or a new deadline (0: a nack) of messages of one response.

    `done` and `refused` are what the answer said; there was none of messages that are in neither.
    """

    started_at: float
    ended_at: float
    named: frozenset[int]
    seconds: float | None = None
    done: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()


@dataclass(slots=True)
class Response:
    """What one pull brought: message ids with their keys, in order."""

    sent_at: float
    received_at: float
    messages: list[tuple[int, str]]
    changes: list[Change] = field(default_factory=list)

    def of_key(self, key: str) -> list[int]:
        return [message_id for message_id, its_key in self.messages if its_key == key]

    def run_of(self, message_id: int) -> list[int]:
        """The messages that share the lease of one: those of its key."""
        key = dict(self.messages)[message_id]
        return self.of_key(key) if key else [message_id]


@dataclass
class Subscription:
    """What the pullers of one subscription saw."""

    name: str
    ordered: bool
    exactly_once: bool
    ack_deadline_seconds: float
    responses: list[Response] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)  # of what was delivered

    @property
    def in_time(self) -> list[Response]:
        return sorted(self.responses, key=lambda response: response.received_at)

    def keys_of(self) -> dict[int, str]:
        return dict(chain.from_iterable(response.messages for response in self.responses))


@dataclass
class OrderedHistory:
    """One topic's publishes, and its subscriptions."""

    subscriptions: list[Subscription]
    publishes: dict[str, list[Publish]] = field(default_factory=lambda: defaultdict(list))  # by key, in order

    @property
    def answered(self) -> dict[int, str]:
        """Text by id of the messages whose publish was answered."""
        return {
            message_id: text
            for publish in chain(*self.publishes.values())
            for message_id, text in zip(publish.ids or (), publish.texts, strict=False)
        }

    def check(self) -> None:
        """Assert all that must hold once everything has been drained."""
        self.check_publish_order()
        for subscription in self.subscriptions:
            self.check_contents(subscription)
            if subscription.ordered:
                self.check_first_deliveries(subscription)
                self.check_turns(subscription)
            if subscription.exactly_once:
                check_leases(subscription)
                check_acks_are_final(subscription)

    def check_publish_order(self) -> None:
        """Ids ascend in the order in which a key's publishes were sent, one after the other."""
        for key, publishes in self.publishes.items():
            ids = [message_id for publish in publishes for message_id in publish.ids or ()]
            assert not key or ids == sorted(set(ids)), f"{key}: {ids}"

    def check_contents(self, subscription: Subscription) -> None:
        """What was answered is delivered; what is delivered was published, under its key, once and whole."""
        answered = self.answered
        lost = set(answered) - set(subscription.texts)
        assert not lost, f"{subscription.name}: {len(lost)} were never delivered: {sorted(lost)[:10]}"
        keys = {text: p.key for p in chain(*self.publishes.values()) for text in p.texts}
        for message_id, key in subscription.keys_of().items():
            text = subscription.texts[message_id]
            assert keys.get(text) == key, f"{subscription.name}: {message_id} {text!r} {key!r}"
            assert answered.get(message_id, text) == text, f"{subscription.name}: {message_id} {text!r}"
        delivered = list(subscription.texts.values())
        assert len(set(delivered)) == len(delivered), f"{subscription.name}: stored twice"

    def check_first_deliveries(self, subscription: Subscription) -> None:
        """The order of first deliveries of a key is its publish order, that is of its ids."""
        seen: set[int] = set()
        first: dict[str, list[int]] = defaultdict(list)
        for response in subscription.in_time:
            for message_id, key in response.messages:
                if key and message_id not in seen:
                    first[key].append(message_id)
                seen.add(message_id)
        for key, ids in first.items():
            assert ids == sorted(ids), f"{subscription.name}: first deliveries of {key}: {ids}"

    def check_turns(self, subscription: Subscription) -> None:
        """A message is delivered only when every earlier one of its key is settled or before it in the response."""
        by_key: dict[str, set[int]] = defaultdict(set)
        for message_id, key in subscription.keys_of().items():
            by_key[key].add(message_id)
        for key, publishes in self.publishes.items():
            by_key[key].update(chain.from_iterable(publish.ids or () for publish in publishes))
        responses: dict[str, list[Response]] = defaultdict(list)
        for response in subscription.in_time:
            for key in {key for _, key in response.messages if key}:
                responses[key].append(response)
        for key, its_responses in responses.items():
            fault = next(_faults_of_key(key, sorted(by_key[key]), its_responses), None)
            assert fault is None, f"{subscription.name}: {fault}"


def _faults_of_key(key: str, ids: Sequence[int], responses: Sequence[Response]) -> Iterator[str]:
    """`ids` are all messages of the key there are, in order."""
    deliveries: dict[int, list[Response]] = defaultdict(list)
    for response in responses:
        for message_id in set(response.of_key(key)):
            deliveries[message_id].append(response)
    for response in responses:
        delivered = response.of_key(key)
        first = bisect_left(ids, delivered[0])
        if list(ids[first : first + len(delivered)]) != delivered:
            yield f"{key}: {delivered} are not neighbours in {ids}"
        proof = 0.0  # when the last pull was sent that brought this or an earlier message, certainly before
        for message_id in ids[:first]:
            before = (d.sent_at for d in deliveries[message_id] if d.received_at < response.sent_at)
            proof = max(proof, max(before, default=0.0))
            if not any(_may_settle(d, message_id, proof, response) for d in deliveries[message_id]):
                yield f"{key}: {delivered} at {response.received_at} while {message_id} is not settled"


def _may_settle(delivery: Response, message_id: int, proof: float, before: Response) -> bool:
    """An ack of this delivery may be why the message was settled when `before` was made."""
    return delivery.received_at >= proof and any(
        change.seconds is None
        and message_id in change.named - change.refused
        and change.started_at <= before.received_at
        for change in delivery.changes
    )


def check_leases(subscription: Subscription) -> None:
    """No message is delivered while it is out under another live lease."""
    for message_id, deliveries in _deliveries(subscription).items():
        for earlier, later in combinations(deliveries, 2):
            live_until = _live_until(subscription, earlier, message_id, later.received_at)
            assert live_until <= later.received_at + CLOCK_SLACK_SECONDS, (
                f"{subscription.name}: {message_id} came at {later.received_at}; it was out since "
                f"{earlier.received_at} until {live_until}"
            )


def _live_until(subscription: Subscription, delivery: Response, message_id: int, at: float) -> float:
    """The time until which a lease certainly lasts as far as calls until `at` decide.

    Messages of a key in one response share the lease of the first that is not acked, so only a change that names
    them all certainly moves it.
    """
    run = frozenset(delivery.run_of(message_id) if subscription.ordered else [message_id])
    until = delivery.sent_at + subscription.ack_deadline_seconds
    for change in sorted(delivery.changes, key=lambda change: change.started_at):
        touched = (change.named - change.refused) & run
        if change.seconds is None or not touched or change.started_at > at:
            continue
        moved = change.started_at + change.seconds
        certain = run <= change.done and change.ended_at <= at
        until = moved if certain else min(until, moved)
    return until


def check_acks_are_final(subscription: Subscription) -> None:
    """No pull that is sent after an ack has succeeded brings the message again."""
    for message_id, deliveries in _deliveries(subscription).items():
        acked_at = min(
            (
                change.ended_at
                for delivery in deliveries
                for change in delivery.changes
                if change.seconds is None and message_id in change.done
            ),
            default=float("inf"),
        )
        late = [delivery.received_at for delivery in deliveries if delivery.sent_at > acked_at]
        assert not late, f"{subscription.name}: {message_id} was acked at {acked_at} and came at {late}"


def _deliveries(subscription: Subscription) -> Mapping[int, Sequence[Response]]:
    deliveries: dict[int, list[Response]] = defaultdict(list)
    for response in subscription.in_time:
        for message_id, _ in response.messages:
            deliveries[message_id].append(response)
    return deliveries


def count_redeliveries(responses: Iterable[Response]) -> int:
    ids = [message_id for response in responses for message_id, _ in response.messages]
    return len(ids) - len(set(ids))
