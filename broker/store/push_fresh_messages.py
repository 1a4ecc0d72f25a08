"""Fresh messages for many subscriptions at once.

Cursors that stand at the same place, with the same filter and retention, have the same fresh messages before them.
Those are looked for once, and shared out once to all that would take equally much: on most shards the cursors of
all push subscriptions stand at the head, so that a publish is looked up once however many there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from broker.domain.delivery import MESSAGE_OVERHEAD, UnreadMessage, as_attempts, share_out
from broker.domain.push_config import Digest
from broker.store import statements
from broker.store.fresh_messages import Fresh, just_past
from broker.store.hot_connection import Bound
from broker.store.push_claim_request import PushDemand

_FIND_FRESH_MESSAGES = statements.hot("find_fresh_messages")

MAX_LOOKED_AT = 10_000  # messages that one claim looks at, at all places together: some 10 ms

Attempts = Sequence[tuple[int, Sequence[UnreadMessage]]]  # attempt number, messages


class Cursor(NamedTuple):
    """Where a subscription stands: everything before (next_publish_time, next_seq) has been claimed."""

    next_publish_time: datetime
    next_seq: int
    due_floor: datetime


@dataclass(slots=True, eq=False)
class Portion:
    """What one demand gets, or several that are alike.

    `position` is where the cursor goes (None: it stays); `more` and `next_look_at` are what PushClaimed says of the
    fresh messages.
    """

    attempts: Attempts = ()
    position: tuple[datetime, int] | None = None
    more: bool = False
    next_look_at: datetime | None = None

    @property
    def messages(self) -> Iterable[UnreadMessage]:
        return (message for _, messages in self.attempts for message in messages)


@dataclass(slots=True, eq=False)
class Place:
    """A place in the log with a filter, and the most that any of the subscriptions there would take.

    `fresh` is None until it was looked at; it stays so if the claim had no room for it.
    """

    cursor: Cursor
    since: datetime
    filter_path: str | None
    max_messages: int = 0
    max_bytes: int = 0
    largest_digest: int = 0
    fresh: Fresh[UnreadMessage] | None = None
    appetites: set[Any] = field(default_factory=set)
    portions: dict[Any, Portion] = field(default_factory=dict)  # shares without redeliveries, by appetite

    def add(self, demand: PushDemand) -> None:
        if demand.appetite in self.appetites:
            return
        self.appetites.add(demand.appetite)
        limits, digest = demand.limits, demand.digest
        # What a digest leaves behind has to be judged as well: may it go at once, or when?
        messages = limits.max_messages + (digest.max_messages if digest else 0)
        self.max_messages = max(self.max_messages, messages)
        self.max_bytes = max(self.max_bytes, limits.max_bytes + (digest.max_bytes if digest else 0))
        self.largest_digest = max(self.largest_digest, digest.max_messages if digest else 0)

    def claimable(self, demand: PushDemand, now: datetime) -> Sequence[UnreadMessage]:
        """The fresh messages that may go to a demand's subscription now."""
        if self.fresh is None or not _may_go(demand.digest, self.fresh.messages, now):
            return ()
        return self.fresh.messages

    def share(
        self, demand: PushDemand, redeliveries: Sequence[tuple[int, UnreadMessage]], now: datetime
    ) -> Portion:
        """Fill a demand, redeliveries (attempt number, message) first."""
        [share] = share_out([demand.limits], redeliveries, self.claimable(demand, now))
        attempts = list(as_attempts(share.redelivered, share.fresh))
        if self.fresh is None:
            return Portion(attempts, more=True)
        taken = len(share.fresh)
        rest = self.fresh.messages[taken:]
        portion = Portion(attempts, self._position_after(taken))
        if not rest:
            portion.more = not self.fresh.all_seen
        elif _may_go(demand.digest, rest, now):
            portion.more = True
        elif demand.digest is not None:
            portion.next_look_at = rest[0].publish_time + demand.digest.max_delay
        return portion

    def _position_after(self, taken: int) -> tuple[datetime, int] | None:
        assert self.fresh is not None
        first = next(iter(self.fresh.messages), None)
        if not taken and first is not None and self.filter_path is not None and first.seq > self.cursor.next_seq:
            return first.publish_time, first.seq  # nothing before it matches; the next look begins here
        return self.fresh.position_after(taken)


def _may_go(digest: Digest | None, waiting: Sequence[UnreadMessage], now: datetime) -> bool:
    if digest is None or not waiting:
        return True
    return (
        len(waiting) >= digest.max_messages
        or waiting[0].publish_time + digest.max_delay <= now
        or sum(message.size for message in waiting) >= digest.max_bytes
    )


def places(demands: Iterable[PushDemand], cursors: Mapping[int, Cursor]) -> dict[int, Place]:
    """The place of each demand, by subscription_id; subscriptions that share a place have the same one."""
    found: dict[tuple[Any, ...], Place] = {}
    by_subscription = {}
    for demand in demands:
        cursor = cursors[demand.subscription_id]
        since = max(cursor.next_publish_time, demand.retained_since)
        key = (cursor.next_publish_time, cursor.next_seq, since, demand.filter_path)
        place = found.get(key)
        if place is None:
            place = found[key] = Place(cursor, since, demand.filter_path)
        place.add(demand)
        by_subscription[demand.subscription_id] = place
    return by_subscription


def with_room(wanted: Iterable[Place]) -> list[tuple[Place, int]]:
    """The places that one claim looks at, and at how many messages of each.

    Each gets an equal share of MAX_LOOKED_AT; a place with a digest as many as make it full, for fewer would look
    as if it were not.  Where that is too much in all the last places have to wait.
    """
    distinct = list(dict.fromkeys(wanted))
    share = max(MAX_LOOKED_AT // max(len(distinct), 1), 1)
    room = MAX_LOOKED_AT
    chosen: list[tuple[Place, int]] = []
    for place in distinct:
        scanned = max(share, place.largest_digest)
        if chosen and scanned > room:
            break
        room -= scanned
        chosen.append((place, scanned))
    return chosen


def find_statement(shard_id: int, chosen: Sequence[tuple[Place, int]]) -> Bound:
    return _FIND_FRESH_MESSAGES, {
        "shard_id": shard_id,
        "next_publish_times": [place.cursor.next_publish_time for place, _ in chosen],
        "next_seqs": [place.cursor.next_seq for place, _ in chosen],
        "sinces": [place.since for place, _ in chosen],
        "filter_paths": [place.filter_path for place, _ in chosen],
        "max_messages": [place.max_messages for place, _ in chosen],
        "max_bytes": [place.max_bytes for place, _ in chosen],
        "max_scanned": [scanned for _, scanned in chosen],
        "overhead": MESSAGE_OVERHEAD,
    }


def found_fresh(chosen: Sequence[tuple[Place, int]], rows: Sequence[tuple[Any, ...]]) -> None:
    """Give each chosen place its fresh messages, from the rows of `find_statement`."""
    for place, _ in chosen:
        place.fresh = Fresh((), None, all_seen=True)
    for number, of_place in groupby(rows, key=itemgetter(0)):
        found = list(of_place)
        messages = [UnreadMessage(seq, time, size) for _, seq, time, size, matches, _ in found if matches]
        _, *last, _, is_end = found[-1]
        place, _ = chosen[number - 1]
        place.fresh = Fresh(messages, just_past(UnreadMessage(*last)), all_seen=is_end)
