"""A push subscription as this process delivers to it: its buffered messages and outstanding requests."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import inf
from typing import NamedTuple

from broker.core.pushing.client.target import Origin, origin_of
from broker.core.pushing.health.endpoint_health import SLOW_LATENCY, EndpointHealth
from broker.core.pushing.health.failing_watch import FailingWatch
from broker.core.pushing.health.running_requests import Attempt
from broker.core.pushing.request.envelope import Envelope
from broker.fairness.shared_capacity import ALPHA, Over, Path, SharedCapacity
from broker.model.ack_id import AttemptName, attempt_name
from broker.model.delivery import Delivery, StoredMessage
from broker.model.names import project_of
from broker.model.push_state import BreakerState, LateAnswers
from broker.model.subscription import Subscription

# Messages are claimed so long before they are sent, so that one claim serves many of them.
_AHEAD_SECONDS = 0.2
_MAX_AHEAD = 500
# The limit of claimed and unsettled messages of an endpoint; a single message may be larger.
MAX_BYTES_HELD = 8_000_000
IN_DOUBT = "in doubt"  # replaces the project where capacity is shared by project; no project has this name
MAX_BYTES_OF_ALL = 512_000_000  # endpoints that hang hold the messages that were sent to them


@dataclass(slots=True, weakref_slot=True)
class Memory:
    """Bytes that the endpoints of a project hold, and `of_all` those of the process.

    No project holds more than so many times what is free (fairness/shared_capacity.py; but what a claim will bring
    is not known beforehand).  Beyond that each endpoint may hold one message.
    """

    of_all: "Memory | None" = None
    bytes_held: int = 0

    def hold(self, size: int) -> None:
        """Adds `size` bytes to those that are held; less than 0: removes them."""
        self.bytes_held += size
        if self.of_all is not None:
            self.of_all.bytes_held += size

    @property
    def is_full(self) -> bool:
        of_all = self.bytes_held if self.of_all is None else self.of_all.bytes_held
        return self.bytes_held >= ALPHA * (MAX_BYTES_OF_ALL - of_all)


@dataclass(eq=False, slots=True)
class Item:
    """A message as it was claimed: `ordinal` in the delivery attempt `name`."""

    message: StoredMessage
    name: AttemptName
    ordinal: int
    attempt_number: int

    @property
    def key(self) -> tuple[int, int]:
        """The key of the message, whatever the attempt."""
        return self.name.shard_id, self.message.seq


@dataclass(eq=False, slots=True)
class PushBatch:
    """The messages of one push request: a message, or several in a digest."""

    items: list[Item]
    claimed_at: float
    due_at: float
    size: int  # bytes


class Slot(NamedTuple):
    """A slot for a request: the capacity that it was taken from, by which paths (slots.py), and when."""

    shared_capacity: SharedCapacity
    paths: tuple[Path, ...]
    since: float


@dataclass(eq=False, slots=True)
class Flight:
    """A request that is under way.

    When it is overdue, its messages are nacked.  A success that arrives later still acknowledges them.
    """

    push_batch: PushBatch
    health: EndpointHealth
    attempt: Attempt
    slot: Slot
    begun_at: float
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    overdue: bool = False
    leaving: bool = False  # its endpoint is gone: it has no slot any more, and must end soon
    excused: bool = False  # it is overdue, but its answer may not have been read yet


@dataclass(eq=False, slots=True)
class Endpoint:
    """State of an endpoint.  `buffer`: batches claimed and not sent; `asked`: how many batches are being
    claimed.
    """

    subscription: Subscription
    health: EndpointHealth
    envelope: Envelope
    failing: FailingWatch
    memory: Memory = field(default_factory=Memory)  # shared by its project
    buffer: deque[PushBatch] = field(default_factory=deque)
    flights: dict[Flight, None] = field(default_factory=dict)  # oldest first
    bytes_held: int = 0
    asked: int = 0
    closed: bool = False  # nothing is claimed or sent any more
    removed: bool = False  # replaced by another endpoint of the subscription, here or in another process
    suspended: bool = False  # for now: the subscription has changed and is being read again
    # Messages whose calls are overdue but still open: the attempts in which they are outstanding now.
    late: dict[tuple[int, int], Item] = field(default_factory=dict)
    late_flights: dict[Flight, None] = field(default_factory=dict)  # oldest first
    reported_breaker: BreakerState = "closed"  # the state that was last written
    late_answers: LateAnswers | None = None  # since the last success in time
    claims_fail_since: float | None = None
    waits_since: float | None = None  # for a slot; nothing is claimed meanwhile
    slots: int | None = None  # how many it had when it was refused one more; None: not limited
    alarm_at: float = 0.0  # when it is checked next without an answer; 0: no alarm is set
    reported_no_slot: bool = False  # whether its wait for a slot was written
    reported_at: float = 0.0  # when its state was last written
    waits_because: Over | None = None  # whose share was used up at the last check
    project: str = field(init=False)  # capacity is shared by project
    origin: Origin = field(init=False)
    payer: str = IN_DOUBT  # whose turns are used to write its outcomes: its project's, if it works well
    reported_waiting: int = 0  # outstanding requests that were last written because one takes long

    def __post_init__(self) -> None:
        self.project = project_of(self.subscription.name)
        self.origin = origin_of(self.subscription.push_config.endpoint)

    @property
    def subscription_id(self) -> int:
        return self.subscription.subscription_id

    def latency(self, now: float) -> float:
        """Returns the seconds until an answer: of late, or already passed for the oldest request under way."""
        oldest = next(iter(self.flights), None)
        return self.health.mean_latency if oldest is None else max(self.health.mean_latency, now - oldest.begun_at)

    def in_doubt(self, now: float) -> bool:
        """Returns whether the endpoint fails, is slow, or has not answered yet."""
        return not self.health.does_well or self.latency(now) > SLOW_LATENCY

    def wants(self, now: float) -> int:
        """Returns how many push batches to claim now.

        They are some more than may be sent at once, but new ones are claimed only when half of those are used up: a
        claim for one message costs as much as a claim for a hundred.
        """
        if self.closed or self.suspended or self.waits_since is not None:
            return 0
        if self.memory.is_full or self.bytes_held >= MAX_BYTES_HELD:
            has_some = self.buffer or self.flights or self.asked
            return 0 if has_some else min(1, self.health.available(now))
        available, waiting = self.health.available(now), len(self.buffer) + self.asked
        if self.slots is not None:  # twice as many, to check whether there are more by now
            available = min(available, max(2 * self.slots - len(self.flights), 0))
        if self.subscription.extensions.push.digest is not None:
            return int(available > waiting)
        ahead = self._ahead(now)
        if waiting >= available and waiting > ahead // 2:
            return 0
        return max(available + ahead - waiting, 0)

    def wakes_at(self, now: float, *, held_up: bool) -> float | None:
        """Returns when to check the endpoint though no answer came in; None: never, an answer must come.

        `held_up`: batches were refused a moment ago; there is no other signal once they are wanted.
        """
        if not held_up and not self.buffer:
            return None
        if 0.0 < self.alarm_at <= now:  # by now there may be capacity, which `opens_at` does not show
            return now
        return now if held_up and self.wants(now) else self.health.opens_at(now)

    def _ahead(self, now: float) -> int:
        health = self.health
        if not health.mean_latency or not health.flows(now):
            return 0
        window = health.window if self.slots is None else min(health.window, self.slots)
        return min(int(window * _AHEAD_SECONDS / health.mean_latency), _MAX_AHEAD)

    def accept(self, deliveries: Iterable[Delivery], now: float, *, due_at: float = inf) -> None:
        """Puts claimed messages behind those that wait: retries and new ones by turns.

        Otherwise many messages that always fail would look like an endpoint that fails.
        """
        retries: list[list[Item]] = []
        new: list[Item] = []
        digest = self.subscription.extensions.push.digest
        for delivery in deliveries:
            items = list(self._items(delivery))
            if delivery.attempt_number == 1:
                new += items
            else:
                most = 1 if digest is None else _retry_size(digest.max_messages, delivery.attempt_number)
                retries += (items[start : start + most] for start in range(0, len(items), most))
        fresh = [[item] for item in new] if digest is None else [new] if new else []
        for pair in zip_longest(retries, fresh):
            for batch_items in pair:
                if batch_items is not None:
                    self._put(batch_items, now, due_at)

    def _put(self, items: list[Item], now: float, due_at: float) -> None:
        push_batch = PushBatch(items, now, due_at, sum(item.message.size for item in items))
        self._hold(push_batch)
        self.buffer.append(push_batch)

    def _hold(self, push_batch: PushBatch) -> None:
        self.bytes_held += push_batch.size
        self.memory.hold(push_batch.size)

    def let_go(self, push_batch: PushBatch) -> None:
        """Releases the memory of a push batch that was settled, or given back."""
        self.bytes_held -= push_batch.size
        self.memory.hold(-push_batch.size)

    def _items(self, delivery: Delivery) -> Iterator[Item]:
        name = attempt_name(self.subscription_id, delivery)
        for ordinal, message in zip(delivery.ordinals, delivery.messages, strict=True):
            item = Item(message, name, ordinal, delivery.attempt_number)
            if self.late and item.key in self.late:
                self.late[item.key] = item
            yield item

    def drop(self, settled: Item) -> None:
        """Drops a message that waits to be sent again and has been settled meanwhile."""
        for push_batch in self.buffer:
            push_batch.items[:] = [item for item in push_batch.items if item is not settled]
        emptied = [push_batch for push_batch in self.buffer if not push_batch.items]
        for push_batch in emptied:
            self.buffer.remove(push_batch)
            self.let_go(push_batch)

    def forget_late(self, flight: Flight) -> None:
        """Forgets an overdue call that has ended, with its messages, unless others of them are still open."""
        self.late_flights.pop(flight, None)
        open_keys = {item.key for other in self.late_flights for item in other.push_batch.items}
        for item in flight.push_batch.items:
            if item.key not in open_keys:
                self.late.pop(item.key, None)

    def take_buffer(self) -> Sequence[PushBatch]:
        """Takes all batches that are claimed and not sent, to release them."""
        push_batches = list(self.buffer)
        self.buffer.clear()
        for push_batch in push_batches:
            self.let_go(push_batch)
        return push_batches


def _retry_size(max_messages: int, attempt_number: int) -> int:
    """Returns how many messages a digest of retries has.

    It halves each time that they failed: a message that the endpoint rejects is soon alone, and delays no others.
    """
    return max(1, max_messages >> (attempt_number - 1))
