"""What publishers of a topic and the endpoints of its push subscriptions saw, and what must hold of it.

Endpoint, publishers and faults use one clock (CLOCK_MONOTONIC).  An endpoint notes a request when it has arrived
and its answer before that is sent: so what it answered at a time, the broker learned later.  Messages are known by
their texts, all different, since a dead letter has an id of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

SUCCESSES = frozenset({102, 200, 201, 202, 204})
SETTLING_SECONDS = 2.0  # after an answer, within which a fault may lose it
STALE_SECONDS = 1.0  # after a stopped process goes on, within which it may send what it had in hand
DEADLINE_SLACK_SECONDS = 0.5  # between a request's start at the broker and its arrival
RATE_SLACK = 0.25  # of a second's worth: requests do not take equally long to arrive
RESENT_SECONDS = 1.0  # after a connection was lost, on another one
TAKEOVER_SECONDS = 20.0  # after a fault, within which a subscription may have two owners, or a new bucket


@dataclass(slots=True)
class Publish:
    """One publish request under one key ("": none).  `ids` is None as long as there is no answer."""

    key: str
    texts: list[str]
    attributes: Mapping[str, str] = field(default_factory=dict)
    ids: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """A message in a request as it arrived.  `ended` with `status` None: the caller gave up, or it was reset."""

    text: str
    message_id: int
    time: float
    ended: float | None = None
    status: int | None = None
    key: str = ""
    delivery_attempt: int | None = None
    path: str = ""

    @property
    def succeeded(self) -> bool:
        return self.status in SUCCESSES


@dataclass(frozen=True, slots=True)
class Fault:
    """ "killed" (a process), "stopped" (for a while), "database"; from its beginning until all was well again."""

    kind: str
    began: float
    ended: float

    def touches(self, began: float, ended: float) -> bool:
        return began <= self.ended and ended >= self.began


@dataclass(frozen=True, slots=True)
class Silence:
    """While nothing may arrive at a path: the endpoint is another one, or pushing is paused."""

    path: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`deliveries`: how often it was delivered, as its attribute says."""

    text: str
    deliveries: int


@dataclass
class Subscription:
    """`wanted`: the attributes that its filter asks for.  `rate`: messages a second."""

    name: str
    ordered: bool = False
    wanted: Mapping[str, str] = field(default_factory=dict)
    max_attempts: int | None = None
    rate: float | None = None
    ack_deadline_seconds: float = 10.0
    sent: list[Sent] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    undelivered: int = 0  # at the end
    outstanding: int = 0

    @property
    def in_time(self) -> list[Sent]:
        return sorted(self.sent, key=lambda sent: sent.time)

    def by_text(self) -> Mapping[str, list[Sent]]:
        """The requests of each message, in time."""
        requests: dict[str, list[Sent]] = defaultdict(list)
        for sent in self.in_time:
            requests[sent.text].append(sent)
        return requests

    def wants(self, publish: Publish) -> bool:
        return self.wanted.items() <= publish.attributes.items()


@dataclass
class PushHistory:
    """One topic's publishes, its push subscriptions, and the faults of the time."""

    subscriptions: list[Subscription]
    publishes: list[Publish] = field(default_factory=list)  # those of a key in the order they were sent
    faults: list[Fault] = field(default_factory=list)

    def check(self) -> None:
        """Assert all that must hold once everything has been delivered."""
        self.check_publish_order()
        for subscription in self.subscriptions:
            self.check_contents(subscription)
            self.check_dead_letters(subscription)
            self.check_repeats(subscription)
            self.check_attempt_numbers(subscription)
            self.check_rate(subscription)
            self.check_silences(subscription)
            if subscription.ordered:
                self.check_turns(subscription)
            left = subscription.undelivered, subscription.outstanding
            assert left == (0, 0), f"{subscription.name}: backlog {left}"

    def check_publish_order(self) -> None:
        """Ids ascend in the order in which a key's publishes were sent, one after the other."""
        ids: dict[str, list[int]] = defaultdict(list)
        for publish in self.publishes:
            ids[publish.key] += publish.ids or ()
        for key, of_key in ids.items():
            assert not key or of_key == sorted(set(of_key)), f"{key}: {of_key}"

    def check_contents(self, subscription: Subscription) -> None:
        """What was answered and matches is delivered or a dead letter; what is sent was published, once."""
        publishes = {text: publish for publish in self.publishes for text in publish.texts}
        ids = self._answered()
        expected = {text for text in ids if subscription.wants(publishes[text])}
        delivered = {sent.text for sent in subscription.sent if sent.succeeded}
        lost = expected - delivered - {dead_letter.text for dead_letter in subscription.dead_letters}
        assert not lost, f"{subscription.name}: {len(lost)} never delivered: {sorted(lost)[:10]}"
        for sent in subscription.sent:
            publish = publishes.get(sent.text)
            assert publish is not None, f"{subscription.name}: nobody published {sent}"
            assert subscription.wants(publish), f"{subscription.name}: its filter does not match {sent}"
            assert publish.key == sent.key, f"{subscription.name}: its key is {publish.key!r}: {sent}"
            assert ids.setdefault(sent.text, sent.message_id) == sent.message_id, (
                f"{subscription.name}: id of {sent}"
            )

    def _answered(self) -> dict[str, int]:
        return {
            text: message_id
            for publish in self.publishes
            for text, message_id in zip(publish.texts, publish.ids or (), strict=False)
        }

    def check_dead_letters(self, subscription: Subscription) -> None:
        """Each at most once, after as many attempts as allowed, and none that was delivered as well."""
        publishes = {text: publish for publish in self.publishes for text in publish.texts}
        requests = subscription.by_text()
        twice = [text for text, n in Counter(d.text for d in subscription.dead_letters).items() if n > 1]
        assert not twice, f"{subscription.name}: more than one dead letter of {twice}"
        for dead_letter in subscription.dead_letters:
            assert dead_letter.text in publishes, f"{subscription.name}: nobody published {dead_letter}"
            assert subscription.wants(publishes[dead_letter.text]), (
                f"{subscription.name}: not its own: {dead_letter}"
            )
            assert dead_letter.deliveries == subscription.max_attempts, f"{subscription.name}: {dead_letter}"
            tried = requests.get(dead_letter.text, [])
            numbers = {sent.delivery_attempt for sent in tried}
            assert self.faults or len(numbers) == dead_letter.deliveries, (
                f"{subscription.name}: {dead_letter} after {tried}"
            )
            for sent in tried:
                assert self._may_come_again(subscription, sent, float("inf")), (
                    f"{subscription.name}: {dead_letter}, {sent}"
                )

    def check_repeats(self, subscription: Subscription) -> None:
        """A message comes again only if the endpoint failed or was late, or a fault lost the answer."""
        for requests in subscription.by_text().values():
            for earlier, later in pairwise(requests):
                assert self._may_come_again(subscription, earlier, later.time), (
                    f"{subscription.name}: sent again at {later.time}: {earlier}; faults: {self.faults}"
                )

    def _may_come_again(self, subscription: Subscription, sent: Sent, at: float) -> bool:
        ended = at if sent.ended is None else min(sent.ended, at)
        if ended - sent.time >= subscription.ack_deadline_seconds - DEADLINE_SLACK_SECONDS:
            return True
        if sent.ended is not None and sent.ended <= at and not sent.succeeded:
            return True
        return any(fault.touches(sent.time, ended + SETTLING_SECONDS) for fault in self.faults)

    def check_attempt_numbers(self, subscription: Subscription) -> None:
        """1, 2, 3 and so on; a fault may leave some out, and what a stopped process sends may come late.

        A request that ends without an answer may be sent once more at once: its connection had waited for it, and
        an endpoint may close such a one at any time.
        """
        if subscription.max_attempts is None:
            return
        for text, requests in subscription.by_text().items():
            counted = [
                sent
                for sent, after in zip(requests, [*requests[1:], None], strict=True)
                if not _resent(sent, after)
            ]
            numbers = [sent.delivery_attempt or 0 for sent in counted if not self._is_stale(sent)]
            where = f"{subscription.name}: attempts of {text}: {numbers}"
            if not self.faults:
                assert numbers == list(range(1, len(numbers) + 1)), where
            assert all(earlier < later for earlier, later in pairwise(numbers)), where
            assert all(1 <= number <= subscription.max_attempts for number in numbers), where

    def _is_stale(self, sent: Sent) -> bool:
        return any(
            fault.kind == "stopped" and fault.began <= sent.time <= fault.ended + STALE_SECONDS
            for fault in self.faults
        )

    def check_rate(self, subscription: Subscription) -> None:
        """In any second no more than the bucket holds and what flows into it, while there is one owner."""
        if subscription.rate is None:
            return
        times = [sent.time for sent in subscription.in_time]
        most = int(subscription.rate * (2 + RATE_SLACK))
        for first, beyond in zip(times, times[most:], strict=False):
            disturbed = any(fault.touches(first - TAKEOVER_SECONDS, beyond) for fault in self.faults)
            assert disturbed or beyond - first >= 1, (
                f"{subscription.name}: more than {most} in the second of {first}"
            )

    def check_silences(self, subscription: Subscription) -> None:
        """Nothing arrives where nothing may; a fault may delay the news of it."""
        for silence in subscription.silences:
            if any(fault.touches(silence.began - TAKEOVER_SECONDS, silence.ended) for fault in self.faults):
                continue
            for sent in subscription.sent:
                where = f"{subscription.name}: {sent} in {silence}"
                assert sent.path != silence.path or not silence.began < sent.time < silence.ended, where

    def check_turns(self, subscription: Subscription) -> None:
        """A message is sent only when every earlier one of its key was delivered or is a dead letter; and no
        earlier one is sent after it.
        """
        dead = {dead_letter.text for dead_letter in subscription.dead_letters}
        answered = self._answered()
        messages: dict[str, set[tuple[int, str]]] = defaultdict(set)
        for publish in self.publishes:
            if subscription.wants(publish):
                messages[publish.key] |= {(answered[text], text) for text in publish.texts if text in answered}
        for sent in subscription.sent:
            messages[sent.key].add((sent.message_id, sent.text))
        requests = subscription.by_text()
        for key, of_key in messages.items():
            if key:
                texts = [text for _, text in sorted(of_key)]
                fault = next(self._faults_of_key(texts, requests, dead), None)
                assert fault is None, f"{subscription.name}, {key}: {fault}; faults: {self.faults}"

    def _faults_of_key(
        self, texts: Sequence[str], requests: Mapping[str, list[Sent]], dead: set[str]
    ) -> Iterator[str]:
        """`texts` are all messages of the key there are, in order."""
        free_at = 0.0  # from when on all earlier ones were delivered
        latest: Sent | None = None  # the last request of an earlier one
        for text in texts:
            of_text = requests.get(text, [])
            if of_text and of_text[0].time < free_at:
                yield f"{of_text[0]} came before earlier ones were delivered, at {free_at}"
            if latest is not None and of_text and of_text[0].time < latest.time and not self._is_stale(latest):
                yield f"{latest} came after {of_text[0]}"
            delivered = [sent.ended for sent in of_text if sent.succeeded and sent.ended is not None]
            if text not in dead:
                free_at = max(free_at, min(delivered, default=float("inf")))
            latest = max([sent for sent in (latest, *of_text) if sent], key=lambda sent: sent.time, default=None)


def _resent(sent: Sent, after: Sent | None) -> bool:
    """Whether it was sent once more at once, as the same attempt."""
    return (
        after is not None
        and after.delivery_attempt == sent.delivery_attempt
        and sent.status is None
        and sent.ended is not None
        and after.time - sent.ended < RESENT_SECONDS
    )
