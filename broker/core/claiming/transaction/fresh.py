"""Fresh messages, which the cursor of a subscription has not passed yet, and the bodies of all messages.

Cursors at the same position, with the same filter and retention, have the same fresh messages.  These are looked up
once, and allocated once to all targets that would take the same number: on most shards the cursors of all push
subscriptions are at the head, so a publish is looked up once however many subscriptions there are.  The body of
each batch is read once, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from broker.core.claiming.transaction.request import MAX_BYTES, ClaimRequest, ClaimTarget, Query
from broker.core.filtering.comparing import BODY_COUNTS_FOR
from broker.core.log.stored_messages import only_message, stored_messages
from broker.db.driver import statements
from broker.model.delivery import MESSAGE_OVERHEAD, StoredMessage
from broker.model.message_range import MessageRange, count_of

_expires_at = attrgetter("expires_at")

_READ_FRESH_BATCHES = statements.hot("read_fresh_batches")
_FIND_FRESH_BATCHES = statements.hot("find_fresh_batches")
_FIND_FRESH_MESSAGES = statements.hot("find_fresh_messages")
_FIND_FRESH_MESSAGES_BY_BODY = statements.hot("find_fresh_messages_by_body")
_READ_BATCHES = statements.hot("read_batches")

MAX_SCANNED = 10_000  # messages that one claim scans, at all places together: some 10 ms
MAX_READ_BYTES = 4_000_000  # of bodies, at all places together: about 40 ms; at each place one batch more


@dataclass(frozen=True, slots=True)
class Fresh:
    """Messages from the cursor on.

    `end` is just past the last message that was scanned; `all_seen`: there were no more.  `past`: the messages
    among them that have expired, which are not in `ranges`; `only_past`: all have, and there are more behind them.
    """

    ranges: Sequence[MessageRange] = ()
    end: tuple[datetime, int] | None = None
    all_seen: bool = True
    past: Sequence[MessageRange] = ()
    only_past: bool = False


@dataclass(slots=True, eq=False)
class Place:
    """A position in the log with a filter, and the most that any of the targets there would take.

    It is where the cursor of the subscription `at` stands.  `fresh` is None until the place was looked up; it stays
    so if the claim had no room for it.  `passes`: all messages that were found there have expired, so the claim
    scans more than any target would take.  `allocations`: what targets that are alike get, by appetite.
    """

    at: int
    since: datetime
    filter_path: str | None
    body_path: str | None
    ordered: bool
    max_messages: int = 0
    max_bytes: int = 0
    largest_digest: int = 0
    scanned: int = 0  # the most messages to scan
    fresh: Fresh | None = None
    passes: bool = False
    appetites: set[Any] = field(default_factory=set)
    allocations: dict[Any, Any] = field(default_factory=dict)

    @property
    def takes_all(self) -> bool:
        """Whether every message matches."""
        return self.filter_path is None and not self.ordered

    @property
    def wanted(self) -> int:
        """The number of messages to look up, where all match."""
        return self.scanned if self.passes else min(self.max_messages, self.scanned)

    def add(self, target: ClaimTarget) -> None:
        """Look up as much as this target would take, too."""
        appetite = target.appetite
        if appetite in self.appetites:
            return
        self.appetites.add(appetite)
        digest = target.digest
        # The messages that a digest leaves must be examined, too: whether they can be delivered at once, or when.
        messages = target.max_messages + (digest.max_messages if digest else 0)
        self.max_messages = max(self.max_messages, messages)
        self.max_bytes = max(self.max_bytes, target.max_bytes + (digest.max_bytes if digest else 0))
        self.largest_digest = max(self.largest_digest, digest.max_messages if digest else 0)


def place_of(target: ClaimTarget, filter_path: str | None, body_path: str | None) -> Place:
    """The place of one subscription alone, with the filter that decides from its cursor on."""
    place = Place(target.subscription_id, target.retained_since, filter_path, body_path, target.ordered)
    place.add(target)
    return place


def shared_places(targets: Iterable[tuple[ClaimTarget, tuple[datetime, int]]]) -> Iterator[Place]:
    """The place of each target, whose cursor is at a known position; some targets share one.

    Ordered subscriptions share none: each has other messages that wait for their key.
    """
    known: dict[tuple[Any, ...], Place] = {}
    for target, position in targets:
        since = max(position[0], target.retained_since)
        paths = target.paths_from(position[0])
        alone = target.subscription_id if target.ordered else None
        key = (position, since, paths, alone)
        place = known.get(key)
        if place is None:
            place = known[key] = place_of(target, *paths)
        else:
            place.add(target)
        yield place


def _with_capacity(wanted: Iterable[Place]) -> list[Place]:
    """The places that one claim looks up.

    Each gets an equal share of MAX_SCANNED; a place with a digest enough messages to fill it, since with fewer it
    would seem not to be full.  Where that is too much in all, the last places have to wait.
    """
    distinct = list(dict.fromkeys(wanted))
    share = max(MAX_SCANNED // max(len(distinct), 1), 1)
    max_left = MAX_SCANNED
    chosen: list[Place] = []
    for place in distinct:
        counts_for = 1 if place.body_path is None else BODY_COUNTS_FOR
        place.scanned = max(share // counts_for, place.largest_digest, 1)
        if chosen and place.scanned * counts_for > max_left:
            break
        max_left -= place.scanned * counts_for
        chosen.append(place)
    return chosen


# --- fresh messages -----------------------------------------------------------------------------------------------


def find_fresh(request: ClaimRequest, places: Iterable[Place], bodies: "Bodies") -> list[Query]:
    """Find the fresh messages at these places.

    At one place alone where every message matches the bodies are read at once.
    """
    chosen = _with_capacity(places)
    by_batch = [place for place in chosen if place.takes_all]
    if len(chosen) == 1 and by_batch and not (by_batch[0].largest_digest or by_batch[0].passes):
        return [_read_batches(request, by_batch[0], bodies)]
    queries = []
    if by_batch:
        limits = {"limits": [place.wanted + 1 for place in by_batch]}  # one more shows whether there are others
        asked = {**_at(request, by_batch), **limits}
        queries.append(Query((_FIND_FRESH_BATCHES, asked), lambda rows: _take_batches(request, by_batch, rows)))
    by_message = [place for place in chosen if not place.takes_all and place.body_path is None]
    if by_message:
        asked = _by_message(request, by_message)
        queries.append(Query((_FIND_FRESH_MESSAGES, asked), lambda rows: _take_messages(request, by_message, rows)))
    by_body = [place for place in chosen if place.body_path is not None]
    if by_body:
        reads = {"body_paths": [place.body_path for place in by_body], "max_read": MAX_READ_BYTES // len(by_body)}
        asked = _by_message(request, by_body) | reads
        take = lambda rows: _take_messages(request, by_body, rows)  # noqa: E731
        queries.append(Query((_FIND_FRESH_MESSAGES_BY_BODY, asked), take))
    return queries


def _read_batches(request: ClaimRequest, place: Place, bodies: "Bodies") -> Query:
    def take(rows: Sequence[Any]) -> None:
        place.fresh = _of_batches(request, rows, place.wanted)
        bodies.add([row for row in rows if row.data is not None])

    asked = {
        "shard_id": request.shard_id,
        "subscription_id": place.at,
        "since": place.since,
        "max_messages": place.wanted + 1,
        "max_bytes": min(place.max_bytes, MAX_BYTES),
    }
    return Query((_READ_FRESH_BATCHES, asked), take)


def _at(request: ClaimRequest, places: Sequence[Place]) -> dict[str, Any]:
    return {**request.where([place.at for place in places]), "sinces": [place.since for place in places]}


def _by_message(request: ClaimRequest, places: Sequence[Place]) -> dict[str, Any]:
    return {
        **_at(request, places),
        "filter_paths": [place.filter_path for place in places],
        "ordered": [place.ordered for place in places],
        "limits": [place.scanned if place.passes else place.max_messages for place in places],
        "max_bytes": [MAX_BYTES if place.passes else place.max_bytes for place in places],
        "max_scanned": [place.scanned for place in places],
        "overhead": MESSAGE_OVERHEAD,
    }


def _by_place(places: Sequence[Place], rows: Iterable[Any]) -> Iterator[tuple[Place, Sequence[Any]]]:
    rows_of = {number: list(of_place) for number, of_place in groupby(rows, key=attrgetter("place"))}
    for number, place in enumerate(places, 1):
        yield place, rows_of.get(number, ())


def _take_batches(request: ClaimRequest, places: Sequence[Place], rows: Iterable[Any]) -> None:
    for place, of_place in _by_place(places, rows):
        place.fresh = _of_batches(request, of_place, place.wanted)


def _of_batches(request: ClaimRequest, rows: Sequence[Any], wanted: int) -> Fresh:
    """Whole batches; of the last one no more messages than are wanted."""
    if not rows:
        return Fresh()
    ranges = [
        MessageRange(
            row.first_seq,
            row.count,
            row.publish_time,
            row.batch,
            row.size + row.count * MESSAGE_OVERHEAD,
            None,
            row.expires_at,
        )
        for row in rows
    ]
    beyond = count_of(ranges) - wanted
    if beyond > 0:
        _drop_last(ranges, beyond)
    end = ranges[-1].publish_time, ranges[-1].end
    return _without_expired(request, Fresh(ranges, end, all_seen=beyond <= 0))


def _drop_last(ranges: list[MessageRange], number: int) -> None:
    """Remove so many messages from the end, fewer than there are."""
    while number > 0:
        last = ranges.pop()
        if last.length > number:
            ranges.append(last.first(last.length - number))
        number -= last.length


def _without_expired(request: ClaimRequest, found: Fresh) -> Fresh:
    """Set the expired messages apart."""
    if not any(map(_expires_at, found.ranges)):
        return found
    at = request.handed_out_at()
    past = [each for each in found.ranges if each.is_past(at)]
    ranges = [each for each in found.ranges if not each.is_past(at)]
    return replace(found, ranges=ranges, past=past, only_past=bool(past) and not ranges and not found.all_seen)


def _take_messages(request: ClaimRequest, places: Sequence[Place], rows: Iterable[Any]) -> None:
    for place, of_place in _by_place(places, rows):
        if not of_place:
            place.fresh = Fresh()
            continue
        last = of_place[-1]
        ranges = [
            MessageRange(row.seq, 1, row.publish_time, row.batch, row.size, row.ordering_key, row.expires_at)
            for row in of_place
            if row.matches
        ]
        found = Fresh(ranges, (last.publish_time, last.seq + 1), all_seen=last.is_end)
        place.fresh = _without_expired(request, found)


# --- bodies -------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Bodies:
    """The batches that a claim has read, as messages."""

    _rows: dict[int, Any] = field(default_factory=dict)  # by the last sequence, which identifies a batch
    _batches: dict[int, list[StoredMessage]] = field(default_factory=dict)
    _runs: dict[int, list[StoredMessage] | None] = field(default_factory=dict)

    def add(self, rows: Iterable[Any]) -> None:
        """Keep batches as read_batches.sql and read_fresh_batches.sql return them."""
        self._rows.update({row.batch: row for row in rows})

    def missing(self, runs: Iterable[Sequence[MessageRange]], shard_id: int) -> list[Query]:
        """Read the batches of these messages that are not here yet, range by range."""
        distinct = {id(run): run for run in runs}.values()
        missing = [each for each in chain.from_iterable(distinct) if each.batch not in self._rows]
        if not missing:
            return []
        ranges = list(_without_gaps(sorted(missing, key=attrgetter("first_seq"))))
        asked = {
            "shard_id": shard_id,
            "first_publish_times": [first.publish_time for first, _ in ranges],
            "first_batches": [first.batch for first, _ in ranges],
            "last_publish_times": [last.publish_time for _, last in ranges],
            "last_batches": [last.batch for _, last in ranges],
        }
        return [Query((_READ_BATCHES, asked), self.add)]

    def of(self, ranges: Sequence[MessageRange]) -> list[StoredMessage] | None:
        """The messages, the same list for the same ranges; None if one of them is not in the log any more."""
        run = id(ranges)
        if run not in self._runs:
            self._runs[run] = self._read(ranges)
        return self._runs[run]

    def _read(self, ranges: Sequence[MessageRange]) -> list[StoredMessage] | None:
        messages: list[StoredMessage] = []
        for each in ranges:
            row = self._rows.get(each.batch)
            if row is None:
                return None
            if len(row.data) == 1:
                messages.append(only_message(row))
                continue
            batch = self._batch(row)
            start = each.first_seq - (each.batch - len(batch) + 1)
            messages += batch[start : start + each.length] if each.length < len(batch) else batch
        return messages

    def _batch(self, row: Any) -> list[StoredMessage]:
        if row.batch not in self._batches:
            first_seq = row.batch - len(row.data) + 1
            self._batches[row.batch] = stored_messages(
                first_seq, row.publish_time, row.ordering_key, row.attributes, row.data, row.shared, row.id_seqs
            )
        return self._batches[row.batch]


def _without_gaps(ranges: Iterable[MessageRange]) -> Iterator[tuple[MessageRange, MessageRange]]:
    """The first and the last of each sequence of batches without a gap."""
    first: MessageRange | None = None
    last: MessageRange | None = None
    for each in ranges:
        if first is None or last is None:
            first = each
        elif each.batch != last.batch and each.first_seq != last.batch + 1:
            yield first, last
            first = each
        last = each
    if first is not None and last is not None:
        yield first, last
