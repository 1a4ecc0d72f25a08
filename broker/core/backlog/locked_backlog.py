"""The backlog of a subscription in a shard while its cursor is locked: reads states of messages, and removes some.

A redrive removes only messages that no consumer has; a discard and a purge remove any.  A message in a row of an
attempt is removed from the row, and a message that waits for its ordering key stops waiting.  A message that was
never delivered is in the log at or after the cursor, which cannot skip single messages.  So the cursor moves past
it, and the other messages that it passes are kept in rows of their own.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from broker.core.backlog.delivery_rows import delivery_row
from broker.core.backlog.delivery_state import BACKLOG, DeliveryFacts, DeliveryRow, DeliveryState, delivery_state
from broker.core.backlog.pending_rows import Pending, PendingRows, multiranges
from broker.core.process.attempt_ids import AttemptIds
from broker.core.records.journal import journal_statement
from broker.db.driver import statements
from broker.db.driver.by_shard import run_by_shard
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.model.ack_id import AttemptName
from broker.model.due_attempt import attempt_numbers, due_attempt, replacements
from broker.model.journal import DISCARDED, Author, Event, ranges_of, rows_of
from broker.model.sequences import from_bits, from_multirange, to_bits, to_multirange

_LOCK_BACKLOGS = statements.hot("lock_backlogs")
_READ_BACKLOGS = statements.hot_unlocked("lock_backlogs")
_MATCH_DEAD_LETTERS = statements.hot("match_dead_letters")
_ACKNOWLEDGE = statements.hot("acknowledge")
_LOCK_HOLDING_ATTEMPTS = statements.hot("lock_holding_attempts")
_READ_HOLDING_ATTEMPTS = statements.hot_unlocked("lock_holding_attempts")
_FIND_PASSED = statements.hot("find_passed")
_REPLACE_ATTEMPTS = statements.hot("replace_attempts")
_REPLACE_ORDERED_RUNS = statements.hot("replace_ordered_runs")
_STOP_WAITING = statements.hot("stop_waiting")
_MOVE_CURSORS = statements.hot("move_cursors")

MAX_PASSED = 10_000  # messages that a cursor passes in one transaction


class Located(NamedTuple):
    """A message whose state can be read."""

    seq: int
    publish_time: datetime
    ordering_key: str | None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    """A message that was delivered and is not settled: its row, as it was read and parsed, and its ordinal."""

    row: Any
    parsed: DeliveryRow
    ordinal: int


@dataclass(slots=True, eq=False)
class LockedBacklog:
    """The backlog of one subscription in one shard.  Its cursor is locked, and the rows that hold any of the
    messages that were asked for.
    """

    cursor: Any
    may_consume: bool
    retained_since: datetime
    _held: dict[int, _Held] = field(default_factory=dict)  # by sequence: delivered, not settled messages
    _keys: dict[str, DeliveryRow] = field(default_factory=dict)  # rows of ordering keys
    _matching: Collection[int] | None = None  # the messages that match its filter; None: not read
    _ahead: Sequence[Any] = ()  # the messages that the cursor may pass, and how far they were read
    _read_until: tuple[datetime, int] | None = None
    _passed: Sequence[Any] = ()  # the messages that it passes
    _passed_seqs: Collection[int] = ()
    _end: tuple[datetime, int] | None = None  # the new position of the cursor

    @property
    def shard_id(self) -> int:
        return int(self.cursor.shard_id)

    @property
    def subscription_id(self) -> int:
        return int(self.cursor.subscription_id)

    @property
    def name(self) -> str:
        return str(self.cursor.name)

    @property
    def has_filter(self) -> bool:
        return self.cursor.filter_path is not None

    def state(self, message: Any, now: datetime) -> DeliveryState:
        """Returns the delivery state of a message."""
        return delivery_state(self._facts(message), retained_since=self.retained_since, now=now)

    def has(self, message: Any, now: datetime) -> bool:
        """Whether a message is in the backlog."""
        return self.state(message, now) in BACKLOG

    def is_taken(self, message: Any, now: datetime) -> bool:
        """Whether a consumer or the dead-letter forwarder has a message, or another one under its attempt id.

        All messages of an ordering key that are in one row have one attempt id, so taking one of them out would
        void the ack ids of the others.
        """
        held = self._held.get(message.seq)
        return held is not None and _is_out(held.row, now)

    def is_free(self, message: Any, now: datetime) -> bool:
        """Whether a message of the backlog can be taken out of it without voiding ack ids that consumers hold."""
        return self.has(message, now) and not self.is_taken(message, now)

    def delivers_again(self, message: Any, now: datetime) -> bool:
        """Whether a message is in the backlog, and remains there if a consumer that has it does not ack it."""
        state = self.state(message, now)
        may_return = state is DeliveryState.EXHAUSTED or not self._facts(message).is_too_old(
            self.retained_since, now
        )
        return state in BACKLOG and may_return

    def attempts(self, message: Any) -> int:
        """Returns how often a message was delivered that is not settled."""
        held = self._held.get(message.seq)
        return 0 if held is None else held.parsed.attempts(held.ordinal)

    def row_of(self, message: Any) -> Any:
        """Returns the row of a message that was delivered and is not settled; None: it was not, or is."""
        held = self._held.get(message.seq)
        return None if held is None else held.row

    def place_of(self, message: Any) -> tuple[AttemptName, int, bool] | None:
        """Returns the attempt that has a message which is not settled, its ordinal there, and whether it is out.

        None: it was never delivered, or is settled.
        """
        held = self._held.get(message.seq)
        if held is None:
            return None
        row = held.row
        is_ordered = row.ordering_key is not None
        attempt = AttemptName(self.subscription_id, self.shard_id, row.attempt_id, len(row.open), is_ordered)
        return attempt, held.ordinal, held.parsed.is_out(held.ordinal)

    def _facts(self, message: Any) -> DeliveryFacts:
        held = self._held.get(message.seq)
        key_row = self._keys.get(message.ordering_key) if message.ordering_key is not None else None
        if key_row is not None and not self.cursor.ordered and not key_row.waits(message.seq):
            key_row = None
        return DeliveryFacts(
            seq=message.seq,
            publish_time=message.publish_time,
            expires_at=message.expires_at,
            next_seq=self.cursor.next_seq,
            first_seq=self.cursor.first_seq,
            row=None if held is None else held.parsed,
            ordinal=0 if held is None else held.ordinal,
            key_row=key_row,
            matches=self._matching is None or message.seq in self._matching,
        )

    async def ask_filter(self, connection: HotConnection, messages: Sequence[Any]) -> None:
        """Read which of these messages the subscription's filter matches, if it has one."""
        if not self.has_filter or not messages:
            return
        asked = {
            "shard_ids": [self.shard_id] * len(messages),
            "publish_times": [message.publish_time for message in messages],
            "seqs": [message.seq for message in messages],
            "filter_path": self.cursor.filter_path,
            "body_path": self.cursor.body_path,
        }
        rows = await run_by_shard(connection, _MATCH_DEAD_LETTERS, asked)
        self.note_matching({row.seq for row in rows if row.matches})

    def note_matching(self, seqs: Collection[int]) -> None:
        """Notes which of the messages the filter matches."""
        self._matching = seqs

    def take_rows(self, rows: Iterable[Any], keys: Mapping[int, str | None]) -> None:
        """Takes the rows that hold any of some messages, given as sequences with their ordering keys."""
        for row in rows:
            parsed = delivery_row(row)
            for ordinal in parsed.unsettled:
                if parsed.seqs[ordinal] in keys:
                    self._held[parsed.seqs[ordinal]] = _Held(row, parsed, ordinal)
            if row.ordering_key is not None:
                self._keys[row.ordering_key] = parsed

    async def read_ahead(self, connection: HotConnection, messages: Sequence[Any]) -> None:
        """Read what the cursor would have to pass to be past these messages, before any of its rows is locked."""
        ahead = [message for message in messages if message.seq >= self.cursor.next_seq]
        if not ahead:
            return
        last = max(ahead, key=lambda message: message.seq)
        asked = {
            "shard_id": self.shard_id,
            "subscription_id": self.subscription_id,
            "filter_path": self.cursor.filter_path,
            "body_path": self.cursor.body_path,
            "until_seq": last.seq,
            "until_publish_time": last.publish_time,
            "max_messages": MAX_PASSED,
        }
        [self._ahead] = await connection.run((_FIND_PASSED, asked))
        is_all = len(self._ahead) < MAX_PASSED
        self._read_until = (
            (last.publish_time, last.seq) if is_all else (self._ahead[-1].publish_time, self._ahead[-1].seq)
        )

    @property
    def keys_ahead(self) -> set[str]:
        """The ordering keys of the messages that the cursor may pass."""
        return {row.ordering_key for row in self._ahead if row.ordering_key is not None and self.cursor.ordered}

    def pending_rows(self, messages: Sequence[Any], *, redriven: bool) -> PendingRows:
        """Returns rows in which messages that the cursor has passed, or is about to, can be delivered."""
        return PendingRows(
            shard_id=self.shard_id,
            subscription_id=self.subscription_id,
            ordered=self.cursor.ordered,
            next_seq=self.cursor.next_seq if self._end is None else self._end[1],
            redriven=redriven,
            messages=[Pending(each.seq, each.publish_time, each.ordering_key) for each in messages],
        )

    def go_past(self, messages: Sequence[Any]) -> int | None:
        """Lets the cursor pass these messages, as far as `read_ahead` has read.

        Returns the sequence up to which it can, if that is before the last of them.
        """
        ahead = [message for message in messages if message.seq >= self.cursor.next_seq]
        if not ahead:
            return None
        assert self._read_until is not None
        last = max(((message.publish_time, message.seq) for message in ahead), key=lambda position: position[1])
        end = min(last, self._read_until, key=lambda position: position[1])
        self._passed = [row for row in self._ahead if row.seq <= end[1]]
        self._passed_seqs = {row.seq for row in self._passed}
        self._end = end[0], end[1] + 1
        return None if end == last else end[1]

    def removed(self, messages: Sequence[Any], attempt_ids: AttemptIds, now: datetime) -> Iterator[Bound]:
        """Yields statements that move the cursor as `go_past` has decided, and that remove messages from rows and
        from those that wait for their ordering key.  No consumer may have any of these messages.
        """
        taken = {message.seq for message in messages}
        if taken:
            yield from self._out_of_rows(taken, attempt_ids, now)
        yield from self._pass(taken, attempt_ids, now)
        yield from self._stop_waiting(messages)

    def reaches(self, message: Any, until: int | None) -> bool:
        """Whether a message of the backlog can be settled now.  `until`: the result of `go_past`."""
        held = self._held.get(message.seq)
        if held is not None and held.row.ordering_key is not None and held.row.status == "exhausted":
            return held.ordinal == held.parsed.head  # another is being dead-lettered; its reason must stay
        return until is None or message.seq <= until

    def passes(self, message: Any) -> bool:
        """Whether the filter matches a message that can be settled; ahead of the cursor it may not."""
        return message.seq < self.cursor.next_seq or message.seq in self._passed_seqs

    def dropped(
        self,
        messages: Sequence[Any],
        attempt_ids: AttemptIds,
        now: datetime,
        author: Author,
        answer: str = DISCARDED,
    ) -> Iterator[Bound]:
        """Yields statements that settle these messages for good, also those that a consumer has."""
        taken = {message.seq for message in messages}
        masks: dict[int, set[int]] = {}
        lengths: dict[int, int] = {}
        for row in self._rows_with(taken):
            if row.ordering_key is None:
                lengths[row.attempt_id] = len(row.open)
                ordinals = enumerate(from_multirange(row.seqs))
                masks.setdefault(row.attempt_id, set()).update(n for n, seq in ordinals if seq in taken)
        if masks:
            yield (
                _ACKNOWLEDGE,
                {
                    "shard_id": self.shard_id,
                    "subscription_ids": [self.subscription_id] * len(masks),
                    "attempt_ids": list(masks),
                    "masks": [to_bits(masks[attempt_id], lengths[attempt_id]) for attempt_id in masks],
                },
            )
        runs = [row for row in self._rows_with(taken) if row.ordering_key is not None]
        yield from self._replace_runs([_without(row, taken, attempt_ids, now) for row in runs], now)
        yield from self._pass(taken, attempt_ids, now)
        yield from self._stop_waiting(messages)
        if taken:
            attribution = ranges_of(sorted(taken))
            rows = rows_of(None, self.subscription_id, Event.ACKED, 0, attribution, author=author, answer=answer)
            yield journal_statement(self.shard_id, list(rows), now)

    def _rows_with(self, taken: Collection[int]) -> list[Any]:
        return list({id(held.row): held.row for seq, held in self._held.items() if seq in taken}.values())

    def _replace_runs(self, runs: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[Bound]:
        if runs:
            by_column = {name: [run[name] for run in runs] for name in runs[0]}
            yield _REPLACE_ORDERED_RUNS, {"shard_id": self.shard_id, "now": now, **by_column}

    def _out_of_rows(self, taken: set[int], attempt_ids: AttemptIds, now: datetime) -> Iterator[Bound]:
        changed = []
        runs = []
        for row in self._rows_with(taken):
            if row.ordering_key is not None:
                runs.append(_without(row, taken, attempt_ids, now))
                continue
            attempt = due_attempt(row)
            attempt.drop(taken & attempt.open.keys())
            changed.append((self.subscription_id, attempt))
        columns = replacements(changed)
        if columns:
            yield _REPLACE_ATTEMPTS, {"shard_id": self.shard_id, **columns}
        yield from self._replace_runs(runs, now)

    def _pass(self, taken: set[int], attempt_ids: AttemptIds, now: datetime) -> Iterator[Bound]:
        """Moves the cursor, and keeps the messages that it passes in rows, except those that are taken out."""
        if self._end is None:
            return
        publish_time, next_seq = self._end
        left = [row for row in self._passed if row.seq not in taken]
        yield from self.pending_rows(left, redriven=False).statements(attempt_ids, now)
        yield (
            _MOVE_CURSORS,
            {
                "shard_id": self.shard_id,
                "subscription_ids": [self.subscription_id],
                "next_publish_times": [publish_time],
                "next_seqs": [next_seq],
                "due_floors": [self.cursor.due_floor],
                "due_firsts": [True],
            },
        )

    def _stop_waiting(self, messages: Sequence[Any]) -> Iterator[Bound]:
        """Yields statements that remove messages from those that wait for their ordering key.

        They are needed without ordering too: such rows may come from a snapshot of an ordered subscription.
        """
        keys: dict[str, list[int]] = {}
        for message in messages:
            key_row = self._keys.get(message.ordering_key)
            may_wait = self.cursor.ordered or (key_row is not None and key_row.waits(message.seq))
            if may_wait and message.ordering_key is not None:
                keys.setdefault(message.ordering_key, []).append(message.seq)
        if keys:
            where = {"shard_id": self.shard_id, "subscription_ids": [self.subscription_id] * len(keys)}
            yield _STOP_WAITING, where | {"ordering_keys": list(keys), "seqs": multiranges(keys)}


def _is_out(row: Any, now: datetime) -> bool:
    """Whether a consumer has the messages of a row, or the dead-letter forwarder is about to forward them."""
    return bool(row.status == "exhausted" or (row.status == "delivering" and row.next_delivery_at > now))


def _without(row: Any, taken: set[int], attempt_ids: AttemptIds, now: datetime) -> dict[str, Any]:
    """Returns the new row of a key, as replace_ordered_runs.sql has it, from its first open message on.

    It has another attempt id, since ack ids name messages by their number in the row.  Messages that are
    outstanding with those that are taken are redelivered at their deadline: their ack ids are invalid by then.
    """
    seqs = from_multirange(row.seqs)
    still_open = [number for number in from_bits(row.open) if seqs[number] not in taken]
    head = still_open[0] if still_open else len(seqs)
    numbers = attempt_numbers(row.attempt_numbers)
    left = [(seqs[each], numbers[each]) for each in range(head, len(seqs)) if seqs[each] not in taken]
    is_over = row.status == "exhausted" or (_is_out(row, now) and head >= row.out_count)
    [new_attempt_id] = attempt_ids.take(1, now=now)
    return {
        "subscription_ids": row.subscription_id,
        "attempt_ids": row.attempt_id,
        "new_attempt_ids": new_attempt_id,
        "exactly_once": False,
        "statuses": "nacked" if row.status == "nacked" else "pending",
        "next_delivery_ats": now if is_over else row.next_delivery_at,
        "seqs": to_multirange([seq for seq, _ in left]),
        "out_counts": 0,
        "attempt_numbers": "{" + ",".join(str(number) for _, number in left) + "}",
        "waiting_froms": None,
        "first_publish_times": row.first_publish_time,
        "last_publish_times": row.last_publish_time,
    }


async def lock_backlogs(
    connection: HotConnection,
    *,
    shard_ids: Sequence[int],
    consumable: Collection[int],
    now: datetime,
    own: tuple[int, Sequence[int]] = (0, ()),
    locked: bool = True,
) -> dict[int, list[LockedBacklog]]:
    """Locks the backlogs of all subscriptions that read some shards, and of one subscription in shards of its own
    (`own`).  Returns them by shard, in the one order in which cursors are locked.

    `consumable`: the subscriptions from which dead letters may be removed.  Not `locked`: only to read.
    """
    asked = {"shard_ids": shard_ids, "subscription_id": own[0], "own_shard_ids": list(own[1])}
    [cursors] = await connection.run((_LOCK_BACKLOGS if locked else _READ_BACKLOGS, asked))
    backlogs: dict[int, list[LockedBacklog]] = {}
    for cursor in cursors:
        retained_since = now - timedelta(seconds=cursor.retention)
        backlog = LockedBacklog(cursor, cursor.subscription_id in consumable, retained_since)
        backlogs.setdefault(cursor.shard_id, []).append(backlog)
    return backlogs


async def lock_delivery_rows(
    connection: HotConnection, backlogs: Sequence[LockedBacklog], messages: Sequence[Any], *, locked: bool = True
) -> None:
    """Locks and takes the rows in which the backlogs of one shard have any of these messages, and the rows of all
    ordering keys that are written afterwards: so it comes after `read_ahead`.  Not `locked`: only to read.
    """
    if not backlogs or not messages:
        return
    keys = {message.seq: message.ordering_key for message in messages}
    ahead = set().union(*(backlog.keys_ahead for backlog in backlogs))
    subscription_ids = [backlog.subscription_id for backlog in backlogs]
    rows = await lock_holding(connection, backlogs[0].shard_id, subscription_ids, keys, ahead, locked=locked)
    for backlog in backlogs:
        backlog.take_rows([row for row in rows if row.subscription_id == backlog.subscription_id], keys)


async def lock_holding(
    connection: HotConnection,
    shard_id: int,
    subscription_ids: Sequence[int],
    keys: Mapping[int, str | None],
    more_keys: Collection[str] = (),
    *,
    locked: bool = True,
) -> list[Any]:
    """Returns the rows that hold any of some sequences, and those of their ordering keys and of `more_keys`."""
    asked = {
        "shard_id": shard_id,
        "subscription_ids": subscription_ids,
        "seqs": to_multirange(sorted(keys)),
        "ordering_keys": sorted({key for key in keys.values() if key is not None}.union(more_keys)),
    }
    [rows] = await connection.run((_LOCK_HOLDING_ATTEMPTS if locked else _READ_HOLDING_ATTEMPTS, asked))
    return rows
