"""Fresh messages: those that a subscription's cursor has not passed yet.

Cursors at the same position, with the same filter and retention, have the same fresh messages before them.
Those are looked for once, and shared out once to all that would take equally much: on most shards the cursors of
all push subscriptions stand at the head, so that a publish is looked up once however many there are.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from broker.domain.comparing import BODY_COUNTS_FOR
from broker.domain.delivery import MESSAGE_OVERHEAD
from broker.domain.push_config import Digest
from broker.domain.stretch import Stretch, count_of, drop_last, just_past, size_of
from broker.store.claim.bodies import Bodies
from broker.store.claim.request import MAX_BYTES, Claimant, ClaimRequest
from broker.store.claim.round_trip import RoundTrip
from broker.store.driver import statements

_expires_at = attrgetter("expires_at")

_READ_FRESH_BATCHES = statements.hot("read_fresh_batches")
_FIND_FRESH_BATCHES = statements.hot("find_fresh_batches")
_FIND_FRESH_MESSAGES = statements.hot("find_fresh_messages")
_FIND_FRESH_MESSAGES_BY_BODY = statements.hot("find_fresh_messages_by_body")

MAX_SCANNED = 10_000  # messages that one claim scans, at all places together: some 10 ms
MAX_READ_BYTES = 4_000_000  # of bodies, at all places together: some 40 ms; at each one more


@dataclass(frozen=True, slots=True)
class Fresh:
    """Messages from the cursor on.  `end` is just past the last one scanned; `all_seen`: there were no more.

    `past`: those among them whose time is over.
    """

    stretches: Sequence[Stretch] = ()
    end: tuple[datetime, int] | None = None
    all_seen: bool = True
    past: Sequence[Stretch] = ()

    @property
    def is_past(self) -> bool:
        """All that was found is, and there is more behind it."""
        return bool(self.past) and not self.stretches and not self.all_seen

    def position_after(self, rest: Sequence[Stretch]) -> tuple[datetime, int] | None:
        """Where the cursor goes when all but `rest` is taken (None: it stays).

        Just past the last message scanned, or to the first that is left: nothing before that matches.
        """
        if not rest:
            return self.end
        return rest[0].publish_time, rest[0].first_seq


@dataclass(slots=True, eq=False)
class Place:
    """A position in the log with a filter, and the most that any of the claimants there would take.

    It is where the cursor of the subscription `at` stands.  `fresh` is None until it was looked at; it stays so if
    the claim had no room for it.  `passes`: what stands there is past its time, so it is looked at further than
    anybody would take.  `portions`: what claimants that are alike get, by appetite.
    """

    at: int
    since: datetime
    filter_path: str | None
    body_path: str | None
    ordered: bool
    max_messages: int = 0
    max_bytes: int = 0
    largest_digest: int = 0
    scanned: int = 0  # how many messages may be
    fresh: Fresh | None = None
    passes: bool = False
    appetites: set[Any] = field(default_factory=set)
    portions: dict[Any, Any] = field(default_factory=dict)

    @property
    def takes_all(self) -> bool:
        """Every message matches."""
        return self.filter_path is None and not self.ordered

    @property
    def wanted(self) -> int:
        """How many messages are looked for, where all match."""
        return self.scanned if self.passes else min(self.max_messages, self.scanned)

    @property
    def is_past(self) -> bool:
        """It was looked at, and all that was found is past its time, with more behind it."""
        return self.fresh is not None and self.fresh.is_past

    @property
    def brings_bodies(self) -> bool:
        """Where it is looked at alone."""
        return not (self.largest_digest or self.passes)

    def add(self, claimant: Claimant) -> None:
        appetite = claimant.appetite
        if appetite in self.appetites:
            return
        self.appetites.add(appetite)
        digest = claimant.digest
        # What a digest leaves behind has to be judged as well: may it go at once, or when?
        messages = claimant.max_messages + (digest.max_messages if digest else 0)
        self.max_messages = max(self.max_messages, messages)
        self.max_bytes = max(self.max_bytes, claimant.max_bytes + (digest.max_bytes if digest else 0))
        self.largest_digest = max(self.largest_digest, digest.max_messages if digest else 0)

    def claimable(self, digest: Digest | None, now: datetime) -> Sequence[Stretch]:
        """The fresh messages that may go out now."""
        if self.fresh is None or not may_go(digest, self.fresh.stretches, now):
            return ()
        return self.fresh.stretches


def may_go(digest: Digest | None, waiting: Sequence[Stretch], now: datetime) -> bool:
    """Whether what waits fills a digest, or its oldest has waited for long enough."""
    if digest is None or not waiting:
        return True
    return (
        count_of(waiting) >= digest.max_messages
        or waiting[0].publish_time + digest.max_delay <= now
        or size_of(waiting) >= digest.max_bytes
    )


def place_of(claimant: Claimant, since: datetime) -> Place:
    """The place of one subscription alone, whose cursor is at this time or later."""
    filter_path, body_path = claimant.paths_from(since)
    place = Place(
        claimant.subscription_id,
        claimant.retained_since,
        filter_path,
        body_path,
        claimant.ordered,
    )
    place.add(claimant)
    return place


def shared_places(claimants: Iterable[tuple[Claimant, tuple[datetime, int]]]) -> Iterator[Place]:
    """The place of each claimant, whose cursor is at a known position; some share one.

    Ordered subscriptions share none: what waits for its key is different for each.
    """
    known: dict[tuple[Any, ...], Place] = {}
    for claimant, position in claimants:
        since = max(position[0], claimant.retained_since)
        alone = claimant.subscription_id if claimant.ordered else None
        key = (position, since, *claimant.paths_from(position[0]), alone)
        place = known.get(key)
        if place is None:
            place = known[key] = place_of(claimant, position[0])
        else:
            place.add(claimant)
        yield place


def with_room(wanted: Iterable[Place]) -> list[Place]:
    """The places that one claim looks at.

    Each gets an equal share of MAX_SCANNED; a place with a digest as many as make it full, for fewer would look
    as if it were not.  Where that is too much in all the last places have to wait.
    """
    distinct = list(dict.fromkeys(wanted))
    share = max(MAX_SCANNED // max(len(distinct), 1), 1)
    room = MAX_SCANNED
    chosen: list[Place] = []
    for place in distinct:
        counts_for = 1 if place.body_path is None else BODY_COUNTS_FOR
        place.scanned = max(share // counts_for, place.largest_digest, 1)
        if chosen and place.scanned * counts_for > room:
            break
        room -= place.scanned * counts_for
        chosen.append(place)
    return chosen


def look_at(trip: RoundTrip, request: ClaimRequest, places: Iterable[Place], bodies: Bodies) -> None:
    """Look for what is fresh at these places.  At one alone where all matches the bodies come along."""
    chosen = with_room(places)
    by_batch = [place for place in chosen if place.takes_all]
    if len(chosen) == 1 and by_batch and by_batch[0].brings_bodies:
        [place] = by_batch
        trip.add(
            (_READ_FRESH_BATCHES, _at_one(request, place)),
            take=lambda rows: _take_bodies(request, place, rows, bodies),
        )
    elif by_batch:
        limits = {"limits": [place.wanted + 1 for place in by_batch]}  # one more shows whether there are others
        wanted = {**_at(request, by_batch), **limits}
        trip.add((_FIND_FRESH_BATCHES, wanted), take=lambda rows: _take_batches(request, by_batch, rows))
    by_message = [place for place in chosen if not place.takes_all and place.body_path is None]
    if by_message:
        wanted = _by_message(request, by_message)
        trip.add((_FIND_FRESH_MESSAGES, wanted), take=lambda rows: _take_messages(request, by_message, rows))
    by_body = [place for place in chosen if place.body_path is not None]
    if by_body:
        reads = {"body_paths": [place.body_path for place in by_body], "max_read": MAX_READ_BYTES // len(by_body)}
        wanted = _by_message(request, by_body) | reads
        trip.add((_FIND_FRESH_MESSAGES_BY_BODY, wanted), take=lambda rows: _take_messages(request, by_body, rows))


def _at_one(request: ClaimRequest, place: Place) -> dict[str, Any]:
    return {
        "shard_id": request.shard_id,
        "subscription_id": place.at,
        "since": place.since,
        "max_messages": place.wanted + 1,
        "max_bytes": min(place.max_bytes, MAX_BYTES),
    }


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


def _take_bodies(request: ClaimRequest, place: Place, rows: Sequence[Any], bodies: Bodies) -> None:
    place.fresh = _of_batches(request, rows, place.wanted)
    bodies.add([row for row in rows if row.data is not None])


def _of_batches(request: ClaimRequest, rows: Sequence[Any], wanted: int) -> Fresh:
    """Whole batches; of the last one no more than are wanted."""
    if not rows:
        return Fresh()
    stretches = [
        Stretch(
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
    beyond = count_of(stretches) - wanted
    drop_last(stretches, beyond)
    return _sorted_out(request, Fresh(stretches, just_past(stretches[-1]), all_seen=beyond <= 0))


def _sorted_out(request: ClaimRequest, found: Fresh) -> Fresh:
    """What is past its time apart from what may go out."""
    if not any(map(_expires_at, found.stretches)):
        return found
    at = request.handed_out_at()
    past = [stretch for stretch in found.stretches if stretch.is_past(at)]
    return replace(found, stretches=[each for each in found.stretches if not each.is_past(at)], past=past)


def _take_messages(request: ClaimRequest, places: Sequence[Place], rows: Iterable[Any]) -> None:
    for place, of_place in _by_place(places, rows):
        if not of_place:
            place.fresh = Fresh()
            continue
        last = of_place[-1]
        stretches = [
            Stretch(row.seq, 1, row.publish_time, row.batch, row.size, row.ordering_key, row.expires_at)
            for row in of_place
            if row.matches
        ]
        found = Fresh(stretches, (last.publish_time, last.seq + 1), all_seen=last.is_end)
        place.fresh = _sorted_out(request, found)
