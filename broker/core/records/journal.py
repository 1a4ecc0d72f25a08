"""Writes the journal (F3), always in the transactions that cause its events.

Claims, seeks and the dead-letter forwarder know the events that they cause, and add the rows of the journal.  The
effects of acks and new deadlines are only known to their statements: a Ledger reads the affected rows before, under
locks that these statements take anyway.  The path of a message never reads the journal.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from broker.core.log.deleting import run_in_batches
from broker.db.driver import statements
from broker.db.driver.database import Connection, ResourceConnection
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.statements import BEGIN, COMMIT
from broker.model.ack_id import AttemptName, MessageNames
from broker.model.deadline_change import DeadlineChange
from broker.model.due_attempt import attempt_numbers
from broker.model.journal import DEFAULT_RETENTION, MAX_ROWS, Attribution, Event, Row, ranges_of, rows_of
from broker.model.sequences import from_bits, from_multirange

_INSERT_JOURNAL = statements.hot("insert_journal")
_INSERT_JOURNAL_TEXT = statements.load("insert_journal")
_LOCK_JOURNALED_ATTEMPTS = statements.hot("lock_journaled_attempts")
_DELETE_OLD_JOURNAL = statements.load("delete_old_journal")

_BATCH = 10_000  # rows deleted in one statement
_EVENTS = {
    "delivering": Event.EXTENDED,
    "nacked": Event.NACKED,
    "exhausted": Event.REJECTED,
    "released": Event.RELEASED,
}

Of = tuple[int, int]  # a subscription's attempt

_UNTOLD = nullcontext()


def journal_statement(shard_id: int, rows: Sequence[Row], now: datetime) -> Bound:
    """Writes them, within the caller's transaction."""
    return _INSERT_JOURNAL, journal_parameters(shard_id, rows, now)


async def write_journal(
    connection: ResourceConnection, *, shard_id: int, rows: Sequence[Row], now: datetime
) -> None:
    """Writes entries of the journal within a resource transaction."""
    if rows:
        await connection.exec_driver_sql(_INSERT_JOURNAL_TEXT, journal_parameters(shard_id, rows, now))


def journal_parameters(shard_id: int, rows: Sequence[Row], now: datetime) -> dict[str, Any]:
    """Returns the parameters of insert_journal.sql."""
    return {
        "shard_id": shard_id,
        "now": now,
        "subscription_ids": [row.subscription_id for row in rows],
        "buckets": [row.bucket for row in rows],
        "events": [row.event for row in rows],
        "attempts": [row.attempt for row in rows],
        "seqs": [row.seqs for row in rows],
        "principals": [row.author.principal for row in rows],
        "clients": [row.author.client for row in rows],
        "answers": [row.answer for row in rows],
    }


@dataclass(slots=True)
class _Before:
    """A row of delivery_attempts as it was; `numbers`: of each message's attempt, where it holds a key."""

    seqs: Sequence[int]
    open: Sequence[int]
    number: int
    numbers: Sequence[int] | None
    out_count: int | None

    def number_of(self, ordinal: int) -> int:
        return self.number if self.numbers is None else self.numbers[ordinal]


@dataclass(slots=True)
class Ledger:
    """The journal entries of a transaction of acks or new deadlines, which are written when it ends."""

    shard_id: int
    rows: dict[Of, list[_Before]]
    _attribution: dict[tuple[int, Event, int, Attribution], set[int]] = field(default_factory=dict)

    def acked(
        self,
        asked: Iterable[tuple[AttemptName, set[int]]],
        refused: Sequence[MessageNames],
        journaled: Mapping[AttemptName, Sequence[tuple[Collection[int], Attribution]]],
    ) -> None:
        """Adds acks, without the refused ones.

        A message that several callers asked for is attributed to the first.
        """
        for attempt, ordinals in asked:
            left = ordinals.difference(*(each.get(attempt, ()) for each in refused))
            for some, by in journaled.get(attempt, ()):
                if by.journal is not None:
                    self._add(attempt, left.intersection(some), Event.ACKED, by)
                left = left.difference(some)

    def changed(self, changes: Iterable[DeadlineChange], refused: MessageNames) -> None:
        """Adds new deadlines, without the refused ones."""
        for change in changes:
            if change.attribution is None:
                continue
            done = change.ordinals - refused.get(change.attempt, set())
            if change.attempt.ordered:
                done = self._in_order(change, done)
            answer = change.attribution.answer or change.failure or ""
            self._add(change.attempt, done, _EVENTS[change.status], change.attribution._replace(answer=answer))

    def released(self, attempts: Iterable[AttemptName], journaled: Attribution) -> None:
        """Whole attempts, which reached nobody; of a key without what stands behind, for it was not handed out."""
        for attempt in attempts:
            [row] = self.rows.get(_of(attempt), [None]) if attempt.ordered else [None]
            out = attempt.count if row is None or row.out_count is None else row.out_count
            self._add(attempt, range(out), Event.RELEASED, journaled)

    def _in_order(self, change: DeadlineChange, done: Collection[int]) -> frozenset[int]:
        """Returns the ordinals of an ordering key's attempt that a change affects.

        Only its first message moves the deadline; a message that comes back takes all later ones with it.
        """
        [row] = self.rows.get(_of(change.attempt), [None])
        hit = [] if row is None else sorted({*done}.intersection(row.open))
        if row is None or not hit or row.out_count is None:
            return frozenset()
        if change.status == "delivering":
            return frozenset(hit) if hit[0] == row.open[0] else frozenset()
        if change.status == "exhausted":
            return frozenset(hit[:1])
        return frozenset(range(hit[0], row.out_count))

    def _add(self, attempt: AttemptName, ordinals: Collection[int], event: Event, by: Attribution) -> None:
        for row in self.rows.get(_of(attempt), ()) if ordinals else ():
            named = ordinals if event is Event.NACKED and attempt.ordered else {*ordinals}.intersection(row.open)
            for ordinal in named:
                key = attempt.subscription_id, event, row.number_of(ordinal), by
                self._attribution.setdefault(key, set()).add(row.seqs[ordinal])

    async def close(self, connection: HotConnection, now: datetime) -> None:
        """Write it down and commit."""
        journaled = self._attribution.items()
        rows = list(
            chain.from_iterable(
                rows_of(
                    by.journal,
                    subscription_id,
                    event,
                    number,
                    ranges_of(sorted(seqs)),
                    author=by.author,
                    answer=by.answer,
                )
                for (subscription_id, event, number, by), seqs in journaled
            )
        )
        insert = [journal_statement(self.shard_id, rows, now)] if rows else []
        await connection.run(*insert, (COMMIT, {}))


def written_down(
    connection: HotConnection,
    *,
    shard_id: int,
    attempts: Collection[AttemptName],
    journaled: bool,
    clock: Callable[[], datetime],
) -> AbstractAsyncContextManager[Ledger | None]:
    """A transaction that changes these attempts, and commits at the end with what its ledger has.

    Unless anything is `attribution` there is none: each statement is a transaction of its own.
    """
    return _in_transaction(connection, shard_id, attempts, clock) if journaled else _UNTOLD


@asynccontextmanager
async def _in_transaction(
    connection: HotConnection, shard_id: int, attempts: Collection[AttemptName], clock: Callable[[], datetime]
) -> AsyncIterator[Ledger]:
    try:
        ledger = await _open(connection, shard_id, attempts)
        yield ledger
        await ledger.close(connection, clock())
    except BaseException:
        await connection.close()  # its transaction is open
        raise


async def _open(connection: HotConnection, shard_id: int, attempts: Collection[AttemptName]) -> Ledger:
    names = sorted({_of(attempt) for attempt in attempts})
    lock = (
        _LOCK_JOURNALED_ATTEMPTS,
        {
            "shard_id": shard_id,
            "subscription_ids": [subscription_id for subscription_id, _ in names],
            "attempt_ids": [attempt_id for _, attempt_id in names],
        },
    )
    *_, found = await connection.run((BEGIN, {}), lock, lock)
    rows: dict[Of, list[_Before]] = {}
    for row in found:
        numbers = None if row.attempt_numbers is None else attempt_numbers(row.attempt_numbers)
        before = _Before(from_multirange(row.seqs), from_bits(row.open), row.attempt_number, numbers, row.out_count)
        rows.setdefault((row.subscription_id, row.attempt_id), []).append(before)
    return Ledger(shard_id, rows)


def _of(attempt: AttemptName) -> Of:
    return attempt.subscription_id, attempt.attempt_id


async def delete_old_journal(connection: Connection, *, now: datetime) -> int:
    """Delete rows past their journal's retention, all but the newest MAX_ROWS of a subscription, and those of
    subscriptions that are gone.  Returns how many.
    """
    asked = {
        "now": now,
        "kept_seconds": DEFAULT_RETENTION / timedelta(seconds=1),
        "max_rows": MAX_ROWS,
    }
    return await run_in_batches(connection, _DELETE_OLD_JOURNAL, asked, batch=_BATCH)
