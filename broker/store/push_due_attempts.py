"""The redeliveries of a claim for push: due rows of many subscriptions, locked and looked up together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from broker.domain.delivery import MESSAGE_OVERHEAD, UnreadMessage, due_quota
from broker.domain.sequences import to_multirange
from broker.store import statements
from broker.store.due_attempts import (
    DueAttempt,
    ask,
    due_attempt,
    due_floor_after,
    ready_attempts,
    replacements,
    times_left,
)
from broker.store.hot_connection import Bound, HotConnection
from broker.store.push_claim_request import PushClaimRequest, PushDemand
from broker.store.push_fresh_messages import Cursor, Place, Portion

_LOCK_DUE_ATTEMPTS = statements.hot("lock_due_attempts_of_many")
_READ_NEXT_DELIVERY_ATS = statements.hot("read_next_delivery_ats")
_FIND_DUE_MESSAGES = statements.hot("find_due_messages")
_REPLACE_ATTEMPTS = statements.hot("replace_attempts_of_many")

MAX_DUE_ROWS = 200  # rows that a claim looks at for one subscription
MAX_DUE_ROWS_OF_ALL = 4_000  # and for all together, though at least one for each
MAX_DUE_MESSAGES = 10_000  # that a claim looks up, for all together


@dataclass(slots=True, eq=False)
class Work:
    """One demand whose cursor the claim holds, and what it has found for it.

    `beyond`: due rows that were not read do not come before this (None: all were read).  `changed_meanwhile`: a row
    was acked or given a new time while the claim waited for it.  `upcoming`: the first redelivery that is not due
    yet.  `has_keys`: rows of ordering keys are due, which came from the snapshot of an ordered subscription.
    """

    demand: PushDemand
    cursor: Cursor
    place: Place
    max_due_rows: int = 0
    due: list[DueAttempt] = field(default_factory=list)
    ready: list[DueAttempt] = field(default_factory=list)
    redeliveries: list[tuple[int, UnreadMessage]] = field(default_factory=list)
    beyond: datetime | None = None
    changed_meanwhile: bool = False
    upcoming: datetime | None = None
    has_keys: bool = False
    portion: Portion = field(default_factory=Portion)

    @property
    def more_due(self) -> bool:
        return self.changed_meanwhile or self.beyond is not None or any(row.open for row in self.ready)

    def next_look_at(self, now: datetime) -> datetime | None:
        if not self.due and self.upcoming is None:
            return self.portion.next_look_at
        left = (time for time in times_left(self.due) if time > now)
        others = (time for time in (self.upcoming, self.portion.next_look_at) if time is not None)
        return min(chain(left, others), default=None)

    def due_floor(self, now: datetime) -> datetime:
        """As it is once this claim has committed.  Who did not look for due rows knows nothing new."""
        if not self.demand.look_for_due:
            return self.cursor.due_floor
        return max(self.cursor.due_floor, due_floor_after(now, times_left(self.due), self.beyond))

    def settle(self) -> None:
        """Take what is delivered anew out of its rows."""
        taken = {message.seq for message in self.portion.messages}
        for row in self.ready:
            row.drop([seq for seq in row.asked if seq in row.open and seq in taken])


def due_statements(request: PushClaimRequest, looking: Sequence[Work]) -> tuple[Bound, Bound]:
    """What locks the due rows, and what reads when the next fall due: in this order, so that what has changed while
    the first waited for a lock is seen by the second.
    """
    room = max(MAX_DUE_ROWS_OF_ALL // len(looking), 1)
    for work in looking:
        work.max_due_rows = min(work.demand.max_messages, MAX_DUE_ROWS, room)
    where = {
        "shard_id": request.shard_id,
        "now": request.now,
        "subscription_ids": [work.demand.subscription_id for work in looking],
    }
    limits = {
        "due_floors": [work.cursor.due_floor for work in looking],
        "max_rows": [work.max_due_rows for work in looking],
    }
    return (_LOCK_DUE_ATTEMPTS, {**where, **limits}), (_READ_NEXT_DELIVERY_ATS, where)


def take_due(looking: Iterable[Work], due: Iterable[Sequence[Any]], upcoming: Iterable[Sequence[Any]]) -> None:
    """Give each its rows of `due_statements`."""
    works = {work.demand.subscription_id: work for work in looking}
    for subscription_id, *columns, found_rows, found_until in due:
        work = works[subscription_id]
        if found_rows is not None:  # comes after the rows themselves
            work.changed_meanwhile = found_rows > len(work.due)
            work.beyond = found_until if found_rows == work.max_due_rows else None
            continue
        row = due_attempt(columns)
        work.has_keys = work.has_keys or row.ordering_key is not None
        work.due.append(row)
    for subscription_id, time in upcoming:
        works[subscription_id].upcoming = time


async def find_redeliveries(connection: HotConnection, request: PushClaimRequest, works: Iterable[Work]) -> None:
    """Which due messages each may take, and the number of the attempt that it would be."""
    room = MAX_DUE_MESSAGES
    asked: list[tuple[Work, DueAttempt]] = []
    for work in works:
        if not work.due:
            continue
        _ask(request, work, room)
        asked += ((work, row) for row in work.ready if row.asked)
        room -= sum(len(row.asked) for row in work.ready)
    if not asked:
        return
    runs = [_run(work, row) for work, row in asked]
    distinct = list(dict.fromkeys(runs))  # of endpoints that fail together most are the same
    [rows] = await connection.run((_FIND_DUE_MESSAGES, _wanted(request, distinct)))
    existing: dict[tuple[Any, ...], dict[int, UnreadMessage]] = {run: {} for run in distinct}
    for number, *message in rows:
        found = UnreadMessage(*message)
        existing[distinct[number - 1]][found.seq] = found
    for (work, row), run in zip(asked, runs, strict=True):
        of_run = existing[run]
        # What the log does not hold any more is not due any more, or it would be due for ever.
        row.drop([seq for seq in row.asked if seq not in of_run])
        work.redeliveries += ((row.attempt_number + 1, of_run[seq]) for seq in row.asked if seq in of_run)


def _ask(request: PushClaimRequest, work: Work, room: int) -> None:
    demand = work.demand
    work.ready = ready_attempts(
        work.due,
        now=request.now,
        retry_policy=demand.retry_policy,
        jitter=request.jitter,
        max_attempts=demand.max_attempts,
    )
    fresh = len(work.place.claimable(demand, request.now))
    ask(work.ready, min(due_quota(demand.limits.max_messages, fresh), room))


def _run(work: Work, row: DueAttempt) -> tuple[Any, ...]:
    since = max(row.first_publish_time, work.demand.retained_since)
    seqs = to_multirange(row.asked)
    return row.first_publish_time, row.last_publish_time, seqs, since, work.demand.filter_path


def _wanted(request: PushClaimRequest, runs: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    columns = ("first_publish_times", "last_publish_times", "seqs", "sinces", "filter_paths")
    values = dict(zip(columns, map(list, zip(*runs, strict=True)), strict=True))
    return {"shard_id": request.shard_id, "overhead": MESSAGE_OVERHEAD, **values}


def rewritten_rows(request: PushClaimRequest, works: Iterable[Work]) -> Iterator[Bound]:
    """What is left of the due rows, if any has changed."""
    columns: dict[str, list[Any]] = {}
    for work in works:
        changed = replacements(work.due)
        if changed is None:
            continue
        for name, values in changed.items():
            columns.setdefault(name, []).extend(values)
        ids = [work.demand.subscription_id] * len(changed["attempt_ids"])
        columns.setdefault("subscription_ids", []).extend(ids)
    if columns:
        yield _REPLACE_ATTEMPTS, {"shard_id": request.shard_id, **columns}
