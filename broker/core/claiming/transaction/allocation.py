"""The rules by which a claim allocates due messages, fresh messages and ordering keys to the requests of a target.

Redeliveries and fresh messages share a claim (docs/decisions/0060).  If both compete for it, each gets half of its
messages and half of its bytes, so that any number of messages that always fail cannot starve the others.  A claim
of one message cannot be halved, and one message may be larger than half of the bytes, so with each such claim the
turn to go first passes to the other side.  Redeliveries are delivered in the order in which they became due,
whatever their ordering key.

A message that came back from a repeated delivery within RETRY_SPACING only gets what all others leave.  Otherwise a
consumer that nacks in a tight loop would fill half of its claims with it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import merge
from itertools import chain, takewhile
from math import inf
from typing import NamedTuple

import msgspec

from broker.core.claiming.transaction.ordered_run import GivenRun, OrderedRun, Preferred, nobody
from broker.model.delivery import DeliveryRequest
from broker.model.message_range import MessageRange, count_of, size_of

RETRY_SPACING = timedelta(seconds=1)
# One attempt covers at most this many times as many sequences as it has messages: its next redelivery reads past
# those that are not its own.
_MAX_SPREAD = 4


def is_just_retried(*, attempt_number: int, delivered_at: datetime, now: datetime) -> bool:
    """Whether a due message was delivered less than RETRY_SPACING ago, and not for the first time."""
    return attempt_number > 1 and delivered_at > now - RETRY_SPACING


class Redelivery(NamedTuple):
    """A message without an ordering key that is due for its attempt `number`, since `next_delivery_at`."""

    number: int
    message: MessageRange
    next_delivery_at: datetime
    is_just_retried: bool = False

    @property
    def available(self) -> Sequence[MessageRange]:
        return (self.message,)


# --- how many due messages a claim may deliver --------------------------------------------------------------------


@dataclass(slots=True)
class DueAllocation:
    """The due messages that one claim may deliver.

    `passes_turn`: they competed with fresh messages, so the other side goes first next time.
    """

    runs: list[GivenRun] = field(default_factory=list)
    redeliveries: list[Redelivery] = field(default_factory=list)
    passes_turn: bool = False

    @property
    def count(self) -> int:
        return len(self.redeliveries) + sum(len(messages) for _, messages in self.runs)

    def add(self, due: OrderedRun | Redelivery, messages: Sequence[MessageRange]) -> None:
        """Take these, the first of what is available of it."""
        if isinstance(due, Redelivery):
            self.redeliveries += [due] if messages else ()
        elif messages:
            self.runs.append((due, messages))


def allocate_due(
    runs: Sequence[OrderedRun],
    redeliveries: Sequence[Redelivery],
    fresh: Sequence[MessageRange],
    *,
    max_messages: int,
    max_bytes: int,
    due_first: bool,
) -> DueAllocation:
    """Choose from runs and redeliveries, each in the order of their delivery.

    `due_first`: it is their turn to get the odd message, and one message whatever its size.
    """
    allocation = DueAllocation()
    if not runs and not (fresh and redeliveries):
        allocation.redeliveries += redeliveries[:max_messages]
        return allocation
    due_capacity = _DueCapacity(fresh, max_messages, max_bytes, due_first=due_first)
    in_order: Iterable[OrderedRun | Redelivery] = merge(runs, redeliveries, key=due_order)
    for due in in_order:
        allocation.passes_turn |= bool(fresh) and not due.is_just_retried
        fitting = due_capacity.take(due.available, rest_only=due.is_just_retried)
        allocation.add(due, fitting)
        if len(fitting) < len(due.available):
            break
    return allocation


def due_order(due: OrderedRun | Redelivery) -> tuple[bool, datetime]:
    """Sort messages by the time since when they are due; those that were just retried last."""
    return due.is_just_retried, due.next_delivery_at


class _DueCapacity:
    """The part of a claim that due messages may take: half, or what fresh messages leave if that is more."""

    def __init__(
        self, fresh: Sequence[MessageRange], max_messages: int, max_bytes: int, *, due_first: bool
    ) -> None:
        rest_size = max_bytes - size_of(fresh) if fresh else inf
        half_size = max_bytes // 2
        if fresh and not due_first:  # the first fresh message fits beside them
            half_size = min(half_size, max_bytes - fresh[0].first(1).size)
        self._rest = max_messages - count_of(fresh), rest_size
        self._half = max(self._rest[0], (max_messages + due_first) // 2), max(rest_size, half_size)
        self._any_size = due_first
        self._count = self._size = 0

    def take(self, messages: Sequence[MessageRange], *, rest_only: bool) -> list[MessageRange]:
        """Take as many from the front as fit, in the room that fresh messages leave if `rest_only`."""
        max_count, max_size = self._rest if rest_only else self._half
        taken: list[MessageRange] = []
        for message in messages:
            is_first = self._any_size and not self._count and not rest_only
            if self._count >= max_count or (self._size + message.size > max_size and not is_first):
                break
            taken.append(message)
            self._count, self._size = self._count + 1, self._size + message.size
        return taken


# --- messages without an ordering key -----------------------------------------------------------------------------


class Source:
    """Message ranges that are taken from the front until none is left."""

    def __init__(self, ranges: Sequence[MessageRange]) -> None:
        self._rest = iter(ranges)
        self._next = next(self._rest, None)

    def take(self, max_messages: int, max_bytes: int, *, at_least: int) -> list[MessageRange]:
        """Take as many messages as fit; `at_least` (0 or 1) whatever their size, so that each can be delivered."""
        taken: list[MessageRange] = []
        while self._next is not None and max_messages > 0:
            whole = self._next
            if whole.length > max_messages or whole.size > max_bytes:
                count = _fitting_front(whole, max_messages, max_bytes, at_least=at_least)
                if count <= 0:
                    break
                if count < whole.length:
                    taken.append(whole.first(count))
                    self._next = whole.after(count)
                    break
            taken.append(whole)
            self._next = next(self._rest, None)
            max_messages, max_bytes, at_least = max_messages - whole.length, max_bytes - whole.size, 0
        return taken

    def rest(self) -> list[MessageRange]:
        """Take all messages that are left."""
        left = [] if self._next is None else [self._next, *self._rest]
        self._next = None
        return left


def _fitting_front(messages: MessageRange, max_messages: int, max_bytes: int, *, at_least: int) -> int:
    """The number of messages from the front of a range that fit; `at_least` of them whatever their size."""
    fits = messages.length if messages.size <= max_bytes else max_bytes * messages.length // messages.size
    return min(max_messages, max(fits, at_least))


@dataclass(slots=True)
class Allocation:
    """The messages of one request: fresh ones in log order, and redeliveries by attempt number."""

    fresh: list[MessageRange] = field(default_factory=list)
    redelivered: dict[int, list[MessageRange]] = field(default_factory=dict)

    @property
    def ranges(self) -> list[MessageRange]:
        return [*(message for messages in self.redelivered.values() for message in messages), *self.fresh]


def allocate(
    requests: Sequence[DeliveryRequest], redeliveries: Sequence[Redelivery], fresh: Source
) -> list[Allocation]:
    """Fill the requests in turn, redeliveries first, within the limits of each.

    A request that has nothing yet takes its next message whatever its size: a message larger than any budget must
    still be delivered.  A message that fits nowhere is in no allocation; both sources are used from their front
    only.
    """
    allocations = [Allocation() for _ in requests]
    used = 0  # redeliveries
    for request, allocation in zip(requests, allocations, strict=True):
        bytes_left, taken = request.max_bytes, 0
        while used < len(redeliveries) and taken < request.max_messages:
            number, message = redeliveries[used][:2]
            bytes_left -= message.size
            if taken and bytes_left < 0:
                break
            allocation.redelivered.setdefault(number, []).append(message)
            used, taken = used + 1, taken + 1
        allocation.fresh = fresh.take(request.max_messages - taken, bytes_left, at_least=0 if taken else 1)
    return allocations


def remaining(
    requests: Sequence[DeliveryRequest], given: Sequence[Sequence[MessageRange]]
) -> list[DeliveryRequest]:
    """The requests without the messages that they have been given."""
    left = []
    for request, ranges in zip(requests, given, strict=True):
        bytes_left = request.max_bytes - size_of(ranges)
        count = request.max_messages - count_of(ranges) if bytes_left > 0 or not ranges else 0
        left.append(msgspec.structs.replace(request, max_messages=count, max_bytes=bytes_left))
    return left


def even_parts(requests: Sequence[DeliveryRequest], available: int, *, among: int) -> Sequence[DeliveryRequest]:
    """The requests when `available` messages are allocated: the even ones take no more than their part of them.

    `among`: how many of the requests can get something at all (as many as there are ordering keys, say).
    """
    part = max(1, -(-available // max(1, min(len(requests), among))))
    return [request.within(part if request.evenly else None, request.max_bytes) for request in requests]


def as_attempts(
    redelivered: Mapping[int, Sequence[MessageRange]], fresh: Sequence[MessageRange]
) -> Iterator[tuple[int, Sequence[MessageRange]]]:
    """Messages as attempts with their number: one for each number, split where sequences lie far apart."""
    for number, ranges in redelivered.items():
        yield from ((number, run) for run in close_runs(sorted(ranges)))
    yield from ((1, run) for run in close_runs(fresh))


def close_runs(ranges: Sequence[MessageRange]) -> Iterator[Sequence[MessageRange]]:
    """Split messages in log order where their sequences lie far apart, as those of redeliveries may."""
    if ranges and ranges[-1].end - 1 - ranges[0].first_seq <= _MAX_SPREAD * count_of(ranges):
        yield ranges
        return
    run: list[MessageRange] = []
    held = 0
    for each in ranges:
        if run and each.end - 1 - run[0].first_seq > _MAX_SPREAD * (held + each.length):
            yield run
            run, held = [], 0
        run.append(each)
        held += each.length
    if run:
        yield run


# --- ordering keys ------------------------------------------------------------------------------------------------


def allocate_runs(
    offered: Iterable[GivenRun], requests: Sequence[DeliveryRequest], preferred: Preferred = nobody
) -> list[list[GivenRun]]:
    """Give messages of runs to the requests; a run is never divided between two.

    A run goes to the request that its key is preferred at, if that has room, else to the first that has.
    """
    given: list[list[GivenRun]] = [[] for _ in requests]
    counts = [request.max_messages for request in requests]
    bytes_left = [request.max_bytes for request in requests]
    turn = 0
    for run, messages in offered:
        wanted = preferred(run.ordering_key)
        takers = [] if wanted is None else [wanted]
        fitting: list[MessageRange] = []
        for taker in chain(takers, range(turn, len(requests))):
            fitting = _fitting(messages, counts[taker], bytes_left[taker], empty=not given[taker])
            if fitting:
                break
            if taker == turn:  # this request is full
                turn += 1
        if fitting:
            given[taker].append((run, fitting))
            counts[taker] -= len(fitting)
            bytes_left[taker] -= sum(message.size for message in fitting)
    return given


def _fitting(messages: Sequence[MessageRange], count: int, bytes_left: int, *, empty: bool) -> list[MessageRange]:
    fitting: list[MessageRange] = []
    for message in messages[:count]:
        bytes_left -= message.size
        if bytes_left < 0 and (fitting or not empty):
            break
        fitting.append(message)
    return fitting


def allocate_in_order(
    requests: Sequence[DeliveryRequest], fresh: Sequence[MessageRange], max_run: int, preferred: Preferred = nobody
) -> tuple[list[list[MessageRange]], int]:
    """Fresh messages (ranges of one) for each request, and how many of them were considered.

    A key goes to one request only, up to `max_run` messages of it; its others wait in the log from now on.
    """
    allocating = _InOrder(requests, max_run, preferred)
    considered = sum(1 for _ in takewhile(allocating.consider, fresh))
    return allocating.given, considered


class _InOrder:
    """Allocates fresh messages in the order of the log."""

    def __init__(self, requests: Sequence[DeliveryRequest], max_run: int, preferred: Preferred) -> None:
        self.given: list[list[MessageRange]] = [[] for _ in requests]
        self._requests = requests
        self._bytes_left = [request.max_bytes for request in requests]
        self._max_run = max_run
        self._preferred = preferred
        self._turn = 0
        self._takers: dict[str, int] = {}  # key -> the number of the request that has it
        self._left: dict[str, int] = {}  # key -> how many more may be delivered: none after one that waits

    def consider(self, message: MessageRange) -> bool:
        """Give a message to a request, or let it wait for its key.  False: no request has room for it."""
        key = message.ordering_key
        if key is not None and key in self._takers:
            taker = self._takers[key]
            if not self._has_capacity(taker, message):
                self._left[key] = 0
        else:
            free_taker = self._taker_for(key, message)
            if free_taker is None:
                return False
            taker = free_taker
            if key is not None:
                self._takers[key], self._left[key] = taker, self._max_run
        if key is None or self._left[key]:
            self.given[taker].append(message)
            self._bytes_left[taker] -= message.size
            if key is not None:
                self._left[key] -= 1
        return True

    def _taker_for(self, key: str | None, message: MessageRange) -> int | None:
        wanted = None if key is None else self._preferred(key)
        if wanted is not None and self._has_capacity(wanted, message):
            return wanted
        while self._turn < len(self._requests):
            if self._has_capacity(self._turn, message):
                return self._turn
            self._turn += 1
        return None

    def _has_capacity(self, taker: int, message: MessageRange) -> bool:
        given = self.given[taker]
        limit = self._requests[taker].max_messages
        return len(given) < limit and (not given or self._bytes_left[taker] >= message.size)
