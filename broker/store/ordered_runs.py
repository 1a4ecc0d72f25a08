"""Ordered runs: the rows of `delivery_attempts` that hold an ordering key (A6).

    no row ──first fresh messages of the key──► out ──all acked──► due at once ──a claim──► out (what waits next)
                                                 │                                     └──► no row (nothing waits)
                                                 │ nack, or the deadline passes
                                                 ▼
                        the message and all later ones of its key came back ──retry delay──► out again, in order

As long as the row is there, fresh messages of its key are passed by: they wait in the log, in `waiting`, before the
cursor.  Rows come and go only under the cursor's lock, or a claim would pass a message that nobody looks for [T].
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, takewhile
from typing import Any

from broker.domain.delivery import Delivery, Demand, StoredMessage
from broker.domain.sequences import from_multirange, to_multirange
from broker.store import statements
from broker.store.claim_request import ClaimRequest
from broker.store.due_attempts import attempt_numbers
from broker.store.hot_connection import Bound, HotConnection

_READ_MESSAGES_OF_KEYS = statements.hot("read_messages_of_keys")
_INSERT_ORDERED_RUNS = statements.hot("insert_ordered_runs")
_REPLACE_ORDERED_RUNS = statements.hot("replace_ordered_runs")
_DELETE_ORDERED_RUNS = statements.hot("delete_ordered_runs")
_REPLACE_ATTEMPTS = statements.hot("replace_attempts")
_KEEP_ACKS = statements.hot("keep_acks")


Preferred = Callable[[str], int | None]


def _nobody(key: str) -> int | None:
    return None


@dataclass(slots=True)
class OrderedRun:
    """A locked row whose time has come.  `left` came back, in order, after so many attempts each (`numbers`)."""

    attempt_id: int
    status: str
    next_delivery_at: datetime
    bits: str
    ordering_key: str
    left: Sequence[int]
    numbers: Sequence[int]
    waiting: str
    first_publish_time: datetime
    last_publish_time: datetime
    found: list[StoredMessage] = field(default_factory=list)  # what may go out next
    taken: list[StoredMessage] = field(default_factory=list)
    asked: Sequence[int] = ()  # of `left`; empty if what waits in the log is asked for
    looked: bool = False  # `found` is all there is of what was asked
    delayed: bool = False  # its retry delay begins, or it is exhausted

    @property
    def next_number(self) -> int:
        """Which attempt it is for what goes out next."""
        return self.numbers[0] + 1 if self.left else 1

    @property
    def gone(self) -> list[int]:
        """What was asked for and the log does not hold (or the filter does not match) any more."""
        existing = {message.seq for message in self.found}
        return [seq for seq in self.asked if self.looked and seq not in existing]

    @property
    def lost(self) -> bool:
        """All that was asked for is gone: the row is to be written anew without it."""
        return bool(self.gone) and not self.found

    @property
    def stays_due(self) -> bool:
        """The row is left with its time (which may have passed)."""
        return not self.taken and not self.done and self.status != "exhausted"

    @property
    def done(self) -> bool:
        """Nothing came back, and nothing waits."""
        return self.looked and not self.left and not self.found

    def behind(self) -> list[tuple[int, int]]:
        """What came back and does not go out now: sequences with their attempt numbers."""
        dropped = {message.seq for message in self.taken}.union(self.gone)
        return [(seq, number) for seq, number in zip(self.left, self.numbers, strict=True) if seq not in dropped]

    def delivery(self, shard_id: int, attempt_id: int) -> Delivery:
        """What was taken, as a delivery."""
        return Delivery(
            shard_id, attempt_id, self.next_number, self.taken, ordered=True, returned=len(self.behind())
        )


def ordered_run(row: Sequence[Any]) -> OrderedRun:
    """From a row of lock_due_attempts.sql that has an ordering key."""
    attempt_id, _, status, _, next_delivery_at, seqs, bits, first, last, key, numbers, waiting = row
    head = bits.find("1")
    came_back = head >= 0
    return OrderedRun(
        attempt_id=attempt_id,
        status=status,
        next_delivery_at=next_delivery_at,
        bits=bits,
        ordering_key=key,
        left=from_multirange(seqs)[head:] if came_back else (),
        numbers=attempt_numbers(numbers)[head:] if came_back else (),
        waiting=waiting,
        first_publish_time=first,
        last_publish_time=last,
    )


async def look_for_messages(
    connection: HotConnection, request: ClaimRequest, runs: Sequence[OrderedRun]
) -> Sequence[OrderedRun]:
    """Find what may go out next of each key; returns the runs that something was found for, the longest due first.

    A run that was delivered `max_attempts` times becomes exhausted instead; one whose deadline has just passed
    begins its retry delay.  With a dead-letter policy a message that failed before goes out alone: it must not take
    the messages behind it along to the dead-letter topic.
    """
    ready = list(_ready(runs, request))
    if not ready:
        return ()
    most = max(1, min(request.max_run, request.max_messages // len(ready)))
    for run in ready:
        if run.left:
            alone = run.numbers[0] > 0 and request.max_attempts is not None
            same = sum(1 for _ in takewhile(run.numbers[0].__eq__, run.numbers))
            run.asked = run.left[: 1 if alone else min(same, most)]
    wanted = {
        "ordering_keys": [run.ordering_key for run in ready],
        "first_publish_times": [run.first_publish_time for run in ready],
        "seqs": [to_multirange(run.asked) if run.left else run.waiting for run in ready],
        "limits": [len(run.asked) or most for run in ready],
        "retained_since": request.retained_since,
        "filter_path": request.filter_path,
        "max_bytes": request.max_bytes,
    }
    [rows] = await connection.run((_READ_MESSAGES_OF_KEYS, {**request.where, **wanted}))
    for number, *columns in rows:
        ready[number - 1].found.append(StoredMessage(*columns))
    for run in ready:
        run.looked = True
    return [run for run in ready if run.found]


def _ready(runs: Iterable[OrderedRun], request: ClaimRequest) -> Iterator[OrderedRun]:
    for run in sorted(runs, key=lambda run: run.next_delivery_at):
        if run.left and request.max_attempts is not None and run.numbers[0] >= request.max_attempts:
            run.status, run.delayed = "exhausted", True
            continue
        if run.left and run.status == "delivering" and request.retry_policy is not None:
            run.next_delivery_at += request.retry_policy.delay(run.numbers[0]) * (1 + request.jitter)
            run.status, run.delayed = "pending", True
        if run.next_delivery_at <= request.now:
            yield run


def give_runs(
    runs: Iterable[OrderedRun], demands: Sequence[Demand], quota: int, preferred: Preferred = _nobody
) -> list[list[OrderedRun]]:
    """Give runs to the demands, up to `quota` messages in all; a run is never spread over two.

    A run goes to the demand that its key is preferred at, if that has room, else to the first that has.
    """
    given: list[list[OrderedRun]] = [[] for _ in demands]
    counts = [demand.max_messages for demand in demands]
    rooms = [demand.max_bytes for demand in demands]
    turn = 0
    for run in runs:
        wanted = preferred(run.ordering_key)
        places = [] if wanted is None else [wanted]
        for place in chain(places, range(turn, len(demands))):
            run.taken = _fitting(run.found, min(counts[place], quota), rooms[place], empty=not given[place])
            if run.taken or quota <= 0:
                break
            if place == turn:  # full
                turn += 1
        if run.taken:
            given[place].append(run)
            counts[place], quota = counts[place] - len(run.taken), quota - len(run.taken)
            rooms[place] -= sum(message.size for message in run.taken)
    return given


def _fitting(messages: Sequence[StoredMessage], count: int, room: int, *, empty: bool) -> list[StoredMessage]:
    fitting: list[StoredMessage] = []
    for message in messages[:count]:
        if message.data is None:  # beyond the byte budget of the read
            break
        room -= message.size
        if room < 0 and (fitting or not empty):
            break
        fitting.append(message)
    return fitting


class _Sharing:
    """Fresh messages being shared out, in the order of the log."""

    def __init__(self, demands: Sequence[Demand], max_run: int, preferred: Preferred) -> None:
        self.shares: list[list[StoredMessage]] = [[] for _ in demands]
        self._demands = demands
        self._rooms = [demand.max_bytes for demand in demands]
        self._max_run = max_run
        self._preferred = preferred
        self._turn = 0
        self._places: dict[str, int] = {}  # key -> the demand that has it
        self._left: dict[str, int] = {}  # key -> how many more may go out: none behind one that waits

    def consider(self, message: StoredMessage) -> bool:
        """Give a message to a demand, or let it wait for its key.  False: nobody has room for it."""
        key = message.ordering_key
        if key is not None and key in self._places:
            place = self._places[key]
            if not self._has_room(place, message):
                self._left[key] = 0
        else:
            found = self._place_for(key, message)
            if found is None:
                return False
            place = found
            if key is not None:
                self._places[key], self._left[key] = place, self._max_run
        if key is None or self._left[key]:
            self.shares[place].append(message)
            self._rooms[place] -= message.size
            if key is not None:
                self._left[key] -= 1
        return True

    def _place_for(self, key: str | None, message: StoredMessage) -> int | None:
        wanted = None if key is None else self._preferred(key)
        if wanted is not None and self._has_room(wanted, message):
            return wanted
        while self._turn < len(self._demands):
            if self._has_room(self._turn, message):
                return self._turn
            self._turn += 1
        return None

    def _has_room(self, place: int, message: StoredMessage) -> bool:
        share = self.shares[place]
        return len(share) < self._demands[place].max_messages and (not share or self._rooms[place] >= message.size)


def share_in_order(
    demands: Sequence[Demand],
    fresh: Sequence[StoredMessage],
    max_run: int,
    preferred: Preferred = _nobody,
) -> tuple[list[list[StoredMessage]], int]:
    """Fresh messages for each demand, and how many of them were considered.

    A key goes to one demand only, up to `max_run` messages of it; its others wait in the log from now on.
    """
    sharing = _Sharing(demands, max_run, preferred)
    considered = sum(1 for _ in takewhile(sharing.consider, fresh))
    return sharing.shares, considered


def clear_away(request: ClaimRequest, runs: Iterable[OrderedRun]) -> Iterator[Bound]:
    """Lets go of the keys of which nothing waits any more: before fresh messages are read."""
    done = [run.attempt_id for run in runs if run.done]
    if done:
        yield from _keep_acks(request, done)
        yield _DELETE_ORDERED_RUNS, {**request.where, "attempt_ids": done}


def rewrite_runs(
    request: ClaimRequest, runs: Sequence[OrderedRun], new_attempt_ids: Mapping[int, int], at: datetime
) -> Iterator[Bound]:
    """What has become of the rows in this claim.  `new_attempt_ids`: of those that go out, or lost messages."""
    delayed = [run for run in runs if run.delayed]
    if delayed:
        yield _REPLACE_ATTEMPTS, {**request.where, **_delayed_rows(delayed)}
    changed = [run for run in runs if run.attempt_id in new_attempt_ids]
    if changed:
        yield from _keep_acks(request, [run.attempt_id for run in changed])
        rows = {"now": at, "exactly_once": request.exactly_once}
        rows |= _columns([_row(request, run, new_attempt_ids[run.attempt_id], at) for run in changed])
        yield _REPLACE_ORDERED_RUNS, {**request.where, **rows}


def _keep_acks(request: ClaimRequest, attempt_ids: list[int]) -> Iterator[Bound]:
    if request.exactly_once:
        until = request.now + request.ack_deadline
        yield _KEEP_ACKS, {**request.where, "until": until, "attempt_ids": attempt_ids}


def _delayed_rows(runs: Sequence[OrderedRun]) -> dict[str, Any]:
    return {
        "attempt_ids": [run.attempt_id for run in runs],
        "parts": [0] * len(runs),
        "open": [run.bits for run in runs],
        "statuses": [run.status for run in runs],
        "next_delivery_ats": [run.next_delivery_at for run in runs],
    }


def _row(request: ClaimRequest, run: OrderedRun, new_attempt_id: int, at: datetime) -> dict[str, Any]:
    out = [message.seq for message in run.taken]
    behind = run.behind()
    seqs = out + [seq for seq, _ in behind]
    numbers = [run.next_number] * len(out) + [number for _, number in behind]
    return {
        "attempt_ids": run.attempt_id,
        "new_attempt_ids": new_attempt_id,
        "statuses": "delivering" if out else "pending",
        "next_delivery_ats": at + request.ack_deadline if out else request.now,
        "seqs": to_multirange(seqs),
        "out_counts": len(out),
        "attempt_numbers": "{" + ",".join(map(str, numbers)) + "}",
        "waiting_froms": out[-1] + 1 if out and not run.left else None,
        "first_publish_times": run.taken[0].publish_time if out else run.first_publish_time,
        "last_publish_times": max(run.last_publish_time, run.taken[-1].publish_time)
        if out
        else run.last_publish_time,
    }


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def new_runs(request: ClaimRequest, deliveries: Sequence[Delivery], at: datetime) -> Iterator[Bound]:
    """Rows, from `at` on, for the first messages of keys that have none."""
    if not deliveries:
        return
    rows = [
        {
            "attempt_ids": delivery.attempt_id,
            "ordering_keys": messages[0].ordering_key,
            "seqs": to_multirange([message.seq for message in messages]),
            "counts": len(messages),
            "waiting": f"{{[{messages[-1].seq + 1},)}}",
            "first_publish_times": messages[0].publish_time,
            "last_publish_times": messages[-1].publish_time,
        }
        for delivery in deliveries
        for messages in [delivery.messages]
    ]
    common = {
        "now": at,
        "ack_deadline": at + request.ack_deadline,
        "exactly_once": request.exactly_once,
    }
    yield _INSERT_ORDERED_RUNS, {**request.where, **common, **_columns(rows)}
