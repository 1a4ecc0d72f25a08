"""Dead letters, as a subscription of their topic has them: its pile; and taking some out of it (G2).

A redrive leaves alone what is out, a discard takes it as well: as an ack would, but of an ordering key, where an
ack counts only behind those before it.  A letter that has been given back is taken out of its row; one that waits
for its ordering key waits no more.  One that nobody was handed yet stands in the log at or behind the cursor, which
cannot leave it out: so the cursor passes it, and what it passes on the way waits from then on in rows of its own.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from broker.domain.delivery_state import BACKLOG, DeliveryFacts, DeliveryRow, DeliveryState, delivery_state
from broker.domain.journal import DISCARDED, Author, Event, ranges_of, rows_of
from broker.domain.sequences import from_bits, from_multirange, to_bits, to_multirange
from broker.store.driver import statements
from broker.store.driver.by_shard import run_by_shard
from broker.store.driver.hot_connection import Bound, HotConnection
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.delivery_rows import delivery_row
from broker.store.log.due_attempt import attempt_numbers, due_attempt, replacements
from broker.store.log.journal import journal_statement
from broker.store.log.pending_rows import Pending, PendingRows, multiranges
from broker.store.log.piles_on_nodes import lock_on_nodes

_LOCK_PILES = statements.hot("lock_piles")
_READ_PILES = statements.hot_unlocked("lock_piles")
_MATCH_LETTERS = statements.hot("match_letters")
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
    """A message of which a pile may be asked how it stands."""

    seq: int
    publish_time: datetime
    ordering_key: str | None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Held:
    """A message that was handed out and is not settled: its row, as it was read and parsed, and its ordinal."""

    row: Any
    parsed: DeliveryRow
    ordinal: int


@dataclass(slots=True, eq=False)
class Pile:
    """One subscription in one shard of a dead-letter topic; its cursor is locked, and the rows that hold any of the
    letters that were asked for.
    """

    cursor: Any
    may_consume: bool
    retained_since: datetime
    _held: dict[int, _Held] = field(default_factory=dict)  # by sequence: what was handed out and is not settled
    _keys: dict[str, DeliveryRow] = field(default_factory=dict)  # rows of ordering keys
    _matching: Collection[int] | None = None  # what its filter matches; None: it was not asked
    _ahead: Sequence[Any] = ()  # what the cursor may pass, and how far that was read
    _read_until: tuple[datetime, int] | None = None
    _passed: Sequence[Any] = ()  # and what it passes
    _passed_seqs: Collection[int] = ()
    _end: tuple[datetime, int] | None = None  # where the cursor goes

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

    def state(self, letter: Any, now: datetime) -> DeliveryState:
        """Returns how a message stands with the subscription."""
        return delivery_state(self._facts(letter), retained_since=self.retained_since, now=now)

    def has(self, letter: Any, now: datetime) -> bool:
        """Whether a message is in the backlog."""
        return self.state(letter, now) in BACKLOG

    def is_taken(self, letter: Any, now: datetime) -> bool:
        """Whether a consumer or the dead-letter forwarder has a message, or another one under its attempt id.

        All messages of an ordering key that are in one row have one attempt id, so taking one of them out would
        void the ack ids of the others.
        """
        held = self._held.get(letter.seq)
        return held is not None and _is_out(held.row, now)

    def is_free(self, letter: Any, now: datetime) -> bool:
        """Whether a message of the backlog can be taken out of it without voiding ack ids that consumers hold."""
        return self.has(letter, now) and not self.is_taken(letter, now)

    def delivers_again(self, letter: Any, now: datetime) -> bool:
        """Whether a message is in the backlog, and remains there if a consumer that has it does not ack it."""
        state = self.state(letter, now)
        may_return = state is DeliveryState.EXHAUSTED or not self._facts(letter).is_too_old(
            self.retained_since, now
        )
        return state in BACKLOG and may_return

    def attempts(self, letter: Any) -> int:
        """Returns how often a message was delivered that is not settled."""
        held = self._held.get(letter.seq)
        return 0 if held is None else held.parsed.attempts(held.ordinal)

    def row_of(self, letter: Any) -> Any:
        """Returns the row of a message that was handed out and is not settled; None: it was not, or is."""
        held = self._held.get(letter.seq)
        return None if held is None else held.row

    def _facts(self, letter: Any) -> DeliveryFacts:
        held = self._held.get(letter.seq)
        key_row = self._keys.get(letter.ordering_key) if letter.ordering_key is not None else None
        if key_row is not None and not self.cursor.ordered and not key_row.waits(letter.seq):
            key_row = None
        return DeliveryFacts(
            seq=letter.seq,
            publish_time=letter.publish_time,
            expires_at=letter.expires_at,
            next_seq=self.cursor.next_seq,
            first_seq=self.cursor.first_seq,
            row=None if held is None else held.parsed,
            ordinal=0 if held is None else held.ordinal,
            key_row=key_row,
            matches=self._matching is None or letter.seq in self._matching,
        )

    async def ask_filter(self, connection: HotConnection, letters: Sequence[Any]) -> None:
        """Read which of these messages the subscription's filter matches, if it has one."""
        if not self.has_filter or not letters:
            return
        asked = {
            "shard_ids": [self.shard_id] * len(letters),
            "publish_times": [letter.publish_time for letter in letters],
            "seqs": [letter.seq for letter in letters],
            "filter_path": self.cursor.filter_path,
            "body_path": self.cursor.body_path,
        }
        rows = await run_by_shard(connection, _MATCH_LETTERS, asked)
        self.note_matching({row.seq for row in rows if row.matches})

    def note_matching(self, seqs: Collection[int]) -> None:
        """The filter matches these, of the messages that are asked about."""
        self._matching = seqs

    def take_rows(self, rows: Iterable[Any], keys: Mapping[int, str | None]) -> None:
        """What holds any of the sequences, each with its key."""
        for row in rows:
            parsed = delivery_row(row)
            for ordinal in parsed.unsettled:
                if parsed.seqs[ordinal] in keys:
                    self._held[parsed.seqs[ordinal]] = _Held(row, parsed, ordinal)
            if row.ordering_key is not None:
                self._keys[row.ordering_key] = parsed

    async def look_ahead(self, connection: HotConnection, letters: Sequence[Any]) -> None:
        """Read what the cursor would have to pass to be past these letters, before any of its rows is locked."""
        ahead = [letter for letter in letters if letter.seq >= self.cursor.next_seq]
        if not ahead:
            return
        last = max(ahead, key=lambda letter: letter.seq)
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
        """The keys of which something may wait, once the cursor has passed it."""
        return {row.ordering_key for row in self._ahead if row.ordering_key is not None and self.cursor.ordered}

    @property
    def next_seq(self) -> int:
        """The first sequence that the cursor has yet to pass, once it has passed what it goes past."""
        return int(self.cursor.next_seq) if self._end is None else self._end[1]

    def go_past(self, letters: Sequence[Any]) -> int | None:
        """Let the cursor pass these letters, of those that it was looked ahead for.

        Returns the sequence up to which it can, if that is before the last of them.
        """
        ahead = [letter for letter in letters if letter.seq >= self.cursor.next_seq]
        if not ahead:
            return None
        assert self._read_until is not None
        last = max(((letter.publish_time, letter.seq) for letter in ahead), key=lambda position: position[1])
        end = min(last, self._read_until, key=lambda position: position[1])
        self._passed = [row for row in self._ahead if row.seq <= end[1]]
        self._passed_seqs = {row.seq for row in self._passed}
        self._end = end[0], end[1] + 1
        return None if end == last else end[1]

    def removed(self, messages: Sequence[Any], attempt_ids: AttemptIds, now: datetime) -> Iterator[Bound]:
        """Yields what moves the cursor as `go_past` has decided, and removes messages from rows and from those that
        wait for their ordering key.  No consumer has any of these messages.
        """
        taken = {message.seq for message in messages}
        if taken:
            yield from self._out_of_rows(taken, attempt_ids, now)
        yield from self._pass(taken, attempt_ids, now)
        yield from self._stop_waiting(messages)

    def reaches(self, letter: Any, until: int | None) -> bool:
        """Whether it can be settled now, of what is held.  `until`: what `go_past` has returned."""
        held = self._held.get(letter.seq)
        if held is not None and held.row.ordering_key is not None and held.row.status == "exhausted":
            return held.ordinal == held.parsed.head  # another is being dead-lettered, and why must be kept
        return until is None or letter.seq <= until

    def passes(self, letter: Any) -> bool:
        """Whether it is delivered at all, of what can be settled: what is ahead may not match the filter."""
        return letter.seq < self.cursor.next_seq or letter.seq in self._passed_seqs

    def dropped(
        self,
        letters: Sequence[Any],
        attempt_ids: AttemptIds,
        now: datetime,
        author: Author,
        answer: str = DISCARDED,
    ) -> Iterator[Bound]:
        """What drops those of these that are held, wherever they are, for good."""
        taken = {letter.seq for letter in letters}
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
        yield from self._stop_waiting(letters)
        if taken:
            told = ranges_of(sorted(taken))
            rows = rows_of(None, self.subscription_id, Event.ACKED, 0, told, author=author, answer=answer)
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
        """Move the cursor; what it passes and nobody takes out waits in rows."""
        if self._end is None:
            return
        publish_time, next_seq = self._end
        left = PendingRows(
            shard_id=self.shard_id,
            subscription_id=self.subscription_id,
            ordered=self.cursor.ordered,
            next_seq=next_seq,
            redriven=False,
            messages=[Pending(*row) for row in self._passed if row.seq not in taken],
        )
        yield from left.statements(attempt_ids, now)
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

    def _stop_waiting(self, letters: Sequence[Any]) -> Iterator[Bound]:
        """A subscription without ordering has such rows of a snapshot of an ordered one."""
        keys: dict[str, list[int]] = {}
        for letter in letters:
            key_row = self._keys.get(letter.ordering_key)
            may_wait = self.cursor.ordered or (key_row is not None and key_row.waits(letter.seq))
            if may_wait and letter.ordering_key is not None:
                keys.setdefault(letter.ordering_key, []).append(letter.seq)
        if keys:
            where = {"shard_id": self.shard_id, "subscription_ids": [self.subscription_id] * len(keys)}
            yield _STOP_WAITING, where | {"ordering_keys": list(keys), "seqs": multiranges(keys)}


def _is_out(row: Any, now: datetime) -> bool:
    """Whether somebody has it just now, or the dead-letter forwarder is to send it on."""
    return bool(row.status == "exhausted" or (row.status == "delivering" and row.next_delivery_at > now))


def _without(row: Any, taken: set[int], attempt_ids: AttemptIds, now: datetime) -> dict[str, Any]:
    """The row of a key, as replace_ordered_runs.sql has it, from its first open message on; with another attempt
    id, since ack ids name messages by their number in the row.  What is out with those that are taken comes again
    at its deadline: an ack of it names nothing any more.
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


async def lock_piles(
    connection: HotConnection,
    *,
    shard_ids: Sequence[int],
    consumable: Collection[int],
    now: datetime,
    own: tuple[int, Sequence[int]] = (0, ()),
    locked: bool = True,
) -> dict[int, list[Pile]]:
    """By shard, in order: all subscriptions that read these shards, and `own` (a subscription, shards) in its.

    `consumable`: those that letters may be taken out of.  Not `locked`: for who only reads.
    """
    if connection.is_distributed:
        cursors = await lock_on_nodes(connection, shard_ids, *own, locked=locked)
    else:
        asked = {"shard_ids": shard_ids, "subscription_id": own[0], "own_shard_ids": list(own[1])}
        [cursors] = await connection.run((_LOCK_PILES if locked else _READ_PILES, asked))
    piles: dict[int, list[Pile]] = {}
    for cursor in cursors:
        retained_since = now - timedelta(seconds=cursor.retention)
        pile = Pile(cursor, cursor.subscription_id in consumable, retained_since)
        piles.setdefault(cursor.shard_id, []).append(pile)
    return piles


async def lock_letters(
    connection: HotConnection, piles: Sequence[Pile], letters: Sequence[Any], *, locked: bool = True
) -> None:
    """What of these letters the piles of one shard have been handed out, or have waiting.  With the rows of all
    keys that are written afterwards, so it comes after `look_ahead`.  Not `locked`: for who only reads.
    """
    if not piles or not letters:
        return
    keys = {letter.seq: letter.ordering_key for letter in letters}
    ahead = set().union(*(pile.keys_ahead for pile in piles))
    subscription_ids = [pile.subscription_id for pile in piles]
    rows = await lock_holding(connection, piles[0].shard_id, subscription_ids, keys, ahead, locked=locked)
    for pile in piles:
        pile.take_rows([row for row in rows if row.subscription_id == pile.subscription_id], keys)


async def lock_holding(
    connection: HotConnection,
    shard_id: int,
    subscription_ids: Sequence[int],
    keys: Mapping[int, str | None],
    more_keys: Collection[str] = (),
    *,
    locked: bool = True,
) -> list[Any]:
    """The rows that hold any of some sequences, each with its key, and those of these keys and of `more_keys`."""
    asked = {
        "shard_id": shard_id,
        "subscription_ids": subscription_ids,
        "seqs": to_multirange(sorted(keys)),
        "ordering_keys": sorted({key for key in keys.values() if key is not None}.union(more_keys)),
    }
    [rows] = await connection.run((_LOCK_HOLDING_ATTEMPTS if locked else _READ_HOLDING_ATTEMPTS, asked))
    return rows
