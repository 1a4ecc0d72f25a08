"""Discards messages in the backlog of a subscription, or among its dead letters (G2).

The steps are part of a transaction that the caller begins and ends.  It first finds which cursors it needs, and
locks all of them in the order of shards and subscriptions.  Then it reads the messages and dead letters again, so
that it sees dead letters that were made or redriven in the meantime.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from broker.core.backlog.locked_backlog import LockedBacklog, lock_backlogs, lock_delivery_rows
from broker.core.backlog.outcome import Outcome
from broker.core.process.attempt_ids import AttemptIds
from broker.core.records.journal import journal_statement
from broker.db.driver import statements
from broker.db.driver.by_shard import by_shard, run_by_shard
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.features.dead_letters.chosen import Chosen
from broker.features.dead_letters.dead_letter_groups import (
    LockedBacklogs,
    dead_letter_state,
    read_chosen,
    read_dead_letter_topics,
)
from broker.features.dead_letters.dead_letter_state import Resolution, can_be_acted_on
from broker.features.dead_letters.discarding.discard import IN_TURN
from broker.model.errors import Aborted
from broker.model.journal import DISCARDED, Author, Event, ranges_of, rows_of

_LOCATE_MESSAGES = statements.hot("locate_messages")
_FIND_DEAD_LETTERS = statements.hot("find_dead_letters")
_LIST_SUBSCRIPTIONS_OF_SHARDS = statements.hot("list_subscriptions_of_shards")
_RESOLVE_DEAD_LETTERS = statements.hot("resolve_dead_letters")

Id = tuple[int, int]  # shard, sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Messages of a subscription to discard.  `shard_ids`: the shards of its own messages.

    `consumable`: the subscriptions from which its dead letters may be removed.  Without `resolves` the caller
    records what became of the dead letters.
    """

    subscription_id: int
    shard_ids: Collection[int]
    ids: Sequence[Id]
    consumable: Collection[int]
    author: Author
    now: datetime
    resolves: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a discard.  `woken`: the subscriptions for which messages may be claimed now.  `newest`: the
    publish time of the newest of the messages and dead letters that were discarded (None: there is none).
    """

    outcomes: Mapping[Id, Outcome]
    left_alone: Collection[str]
    woken: Collection[int]
    newest: datetime | None = None


@dataclass(slots=True)
class _Found:
    """The messages that were found, by id.

    `own`: messages of the subscription.  `dead_letters`: dead letters that an id names.
    """

    own: Mapping[Id, Any]
    dead_letters: Mapping[Id, Sequence[Any]]

    @property
    def dead_letter_shards(self) -> set[int]:
        return {dead_letter.shard_id for dead_letter in chain.from_iterable(self.dead_letters.values())}

    @property
    def source_shards(self) -> set[int]:
        return {dead_letter.source_shard_id for dead_letter in chain.from_iterable(self.dead_letters.values())}

    def of(self, id_: Id, subscription_id: int, backlog: LockedBacklog) -> list[Any]:
        """Returns the messages that an id names in a backlog."""
        found = [
            dead_letter
            for dead_letter in self.dead_letters.get(id_, ())
            if dead_letter.shard_id == backlog.shard_id
        ]
        if id_ in self.own and backlog.subscription_id == subscription_id and backlog.shard_id == id_[0]:
            found.append(self.own[id_])
        return found

    def all_of(self, asked: Discard, backlog: LockedBacklog) -> list[Any]:
        """Returns the messages that all ids name in a backlog."""
        return [dead_letter for id_ in asked.ids for dead_letter in self.of(id_, asked.subscription_id, backlog)]


@dataclass(slots=True)
class _Judged:
    """The messages that each backlog has, by id, and the outcomes of an id in all backlogs."""

    outcomes: dict[Id, set[Outcome]] = field(default_factory=dict)
    held: dict[LockedBacklog, dict[Id, list[Any]]] = field(default_factory=dict)
    left_alone: set[str] = field(default_factory=set)
    dropped: list[Any] = field(default_factory=list)

    @property
    def newest(self) -> datetime | None:
        return max((message.publish_time for message in self.dropped), default=None)

    def add(self, id_: Id, outcome: Outcome) -> None:
        self.outcomes.setdefault(id_, set()).add(outcome)


async def find_dead_letter_subscriptions(connection: HotConnection, asked: Discard) -> list[tuple[int, str]]:
    """Returns id and name of the subscriptions that read shards with the dead letters that are named."""
    found = await _find(connection, asked)
    [rows] = await connection.run((_LIST_SUBSCRIPTIONS_OF_SHARDS, {"shard_ids": sorted(found.dead_letter_shards)}))
    return [(row.subscription_id, row.name) for row in rows]


async def find_dead_letters(connection: HotConnection, asked: Discard) -> list[Any]:
    """Returns the dead letters that any of the ids names."""
    found = await _find(connection, asked)
    return list({(each.shard_id, each.seq): each for some in found.dead_letters.values() for each in some}.values())


async def choose_dead_letters(
    connection: HotConnection, *, chosen: Chosen, shard_id: int, from_seq: int, most: int, now: datetime
) -> tuple[list[int], int | None]:
    """Chooses dead letters of a shard that can be acted on.

    Returns the sequences of their source messages, and the sequence at which to continue (None: at the end).
    """
    found = await read_chosen(connection, chosen, shard_id=shard_id, from_seq=from_seq, now=now, max_scanned=most)
    return [group.seq for group in found.groups if group.is_open], found.next_seq


async def discard(connection: HotConnection, asked: Discard, attempt_ids: AttemptIds) -> Done:
    """Discards messages within the caller's transaction.

    Raises Aborted (a dead letter was made in a shard whose cursors are not locked).
    """
    found = await _find(connection, asked)
    locked_shards = found.dead_letter_shards
    own_shards = {shard_id for shard_id, _ in asked.ids} | found.source_shards
    in_shards = await lock_backlogs(
        connection,
        shard_ids=sorted(locked_shards),
        own=(asked.subscription_id, sorted(own_shards & {*asked.shard_ids})),
        consumable={*asked.consumable, asked.subscription_id},
        now=asked.now,
    )
    # The rows are locked before the dead letters are read again: the forwarder may be at one of these messages.
    for shard_id, backlogs in in_shards.items():
        own = [message for message in found.own.values() if message.shard_id == shard_id]
        dead_letters = [each for some in found.dead_letters.values() for each in some if each.shard_id == shard_id]
        for backlog in backlogs:
            if backlog.may_consume:
                await backlog.read_ahead(connection, found.all_of(asked, backlog))
        await lock_delivery_rows(connection, backlogs, [*own, *dead_letters])
        for backlog in backlogs:
            await backlog.ask_filter(connection, [*own, *dead_letters])
    seen, found = found, await _find(connection, asked)  # after the locks, the changes of others are visible
    if _names(found) != _names(seen):
        raise Aborted("Messages were dead-lettered, or came back, meanwhile; it is tried again.")
    backlogs = list(chain.from_iterable(in_shards.values()))
    judged = _judge(asked, found, backlogs)
    writes = _writes(asked, judged, attempt_ids)
    topics = await read_dead_letter_topics(connection, sorted(locked_shards)) if locked_shards else {}
    dead_letters = _resolve(asked, found, judged, in_shards, topics)
    if asked.resolves and dead_letters:
        writes += resolving(connection, dead_letters, Resolution.DISCARDED, asked)
        writes += _journal_writes(asked, dead_letters, judged)
    if writes:
        await connection.run(*writes)
    known = {*found.own, *found.dead_letters}
    outcomes = {
        id_: next((each for each in IN_TURN if each in judged.outcomes.get(id_, ())), _nowhere(id_ in known))
        for id_ in asked.ids
    }
    woken = {backlog.subscription_id for backlog in judged.held}
    return Done(outcomes, judged.left_alone, woken, judged.newest)


def _nowhere(is_known: bool) -> Outcome:
    return Outcome.ALREADY_SETTLED if is_known else Outcome.UNKNOWN


async def _find(connection: HotConnection, asked: Discard) -> _Found:
    where = {"shard_ids": [shard_id for shard_id, _ in asked.ids], "seqs": [seq for _, seq in asked.ids]}
    located = await run_by_shard(connection, _LOCATE_MESSAGES, where)
    own = {(row.shard_id, row.seq): row for row in located if row.shard_id in asked.shard_ids}
    by_id = {
        "subscription_id": asked.subscription_id,
        "source_shard_ids": where["shard_ids"],
        "source_seqs": where["seqs"],
        "shard_ids": [row.shard_id for row in located],
        "publish_times": [row.publish_time for row in located],
        "seqs": [row.seq for row in located],
    }
    [rows] = await connection.run((_FIND_DEAD_LETTERS, by_id))
    dead_letters: dict[Id, list[Any]] = {}
    ids = {*asked.ids}
    for row in rows:
        for id_ in {(row.shard_id, row.seq), (row.source_shard_id, row.source_seq)} & ids:
            dead_letters.setdefault(id_, []).append(row)
    return _Found(own, dead_letters)


def _names(found: _Found) -> set[Id]:
    return {(each.shard_id, each.seq) for some in found.dead_letters.values() for each in some}


def _judge(asked: Discard, found: _Found, backlogs: Sequence[LockedBacklog]) -> _Judged:
    judged = _Judged()
    for backlog in backlogs:
        for id_ in asked.ids:
            for dead_letter in found.of(id_, asked.subscription_id, backlog):
                if not backlog.has(dead_letter, asked.now):
                    continue
                if backlog.may_consume:
                    judged.held.setdefault(backlog, {}).setdefault(id_, []).append(dead_letter)
                else:
                    judged.add(id_, Outcome.LEFT_ALONE)
                    judged.left_alone.add(backlog.name)
    return judged


def _writes(asked: Discard, judged: _Judged, attempt_ids: AttemptIds) -> list[Bound]:
    writes: list[Bound] = []
    for backlog, held in judged.held.items():
        until = backlog.go_past(list(chain.from_iterable(held.values())))
        reached = []
        for id_, dead_letters in held.items():
            for dead_letter in dead_letters:
                if not backlog.reaches(dead_letter, until):
                    judged.add(id_, Outcome.WAITING)
                elif backlog.passes(dead_letter):
                    judged.add(id_, Outcome.DISCARDED)
                    reached.append(dead_letter)
        judged.dropped += reached
        writes += backlog.dropped(reached, attempt_ids, asked.now, asked.author)
    return writes


def _resolve(
    asked: Discard, found: _Found, judged: _Judged, backlogs: LockedBacklogs, topics: Mapping[int, Any]
) -> list[Any]:
    """Returns the dead letters that this resolves, also those that no subscription has."""
    resolved: dict[Id, Any] = {}
    for id_ in asked.ids:
        outcomes = judged.outcomes.get(id_, set())
        for dead_letter in found.dead_letters.get(id_, ()):
            if dead_letter.resolution == Resolution.EDITED or Outcome.WAITING in outcomes:
                continue
            if Outcome.LEFT_ALONE in outcomes:  # another subscription may still act on it
                continue
            state = dead_letter_state(dead_letter, backlogs, topics, asked.now)
            if not can_be_acted_on([state]):
                continue
            judged.add(id_, Outcome.DISCARDED)
            judged.dropped.append(dead_letter)
            resolved[dead_letter.shard_id, dead_letter.seq] = dead_letter
    return list(resolved.values())


def resolving(
    connection: HotConnection,
    dead_letters: Sequence[Any],
    resolution: Resolution,
    asked: Discard,
    successor: Id = (0, 0),
) -> list[Bound]:
    """Returns statements that record how dead letters were resolved, by whom, and the message that they became.

    The statements return the rows of those that no other transaction has edited.
    """
    given = {
        "shard_ids": [dead_letter.shard_id for dead_letter in dead_letters],
        "publish_times": [dead_letter.publish_time for dead_letter in dead_letters],
        "seqs": [dead_letter.seq for dead_letter in dead_letters],
        "resolution": resolution,
        "now": asked.now,
        "resolved_by": asked.author.principal,
        "successor_shard": successor[0],
        "successor_seq": successor[1],
    }
    return by_shard(connection, _RESOLVE_DEAD_LETTERS, given)


def journal_writes(asked: Discard, dead_letters: Sequence[Any], event: Event, answer: str) -> list[Bound]:
    """Returns journal entries for the messages of these dead letters."""
    seqs: dict[int, set[int]] = {}
    for dead_letter in dead_letters:
        seqs.setdefault(dead_letter.source_shard_id, set()).add(dead_letter.source_seq)
    owner, author = asked.subscription_id, asked.author
    journaled = {
        shard_id: rows_of(None, owner, event, 0, ranges_of(sorted(of_shard)), author=author, answer=answer)
        for shard_id, of_shard in sorted(seqs.items())
    }
    return [journal_statement(shard_id, list(rows), asked.now) for shard_id, rows in journaled.items()]


def _journal_writes(asked: Discard, dead_letters: Sequence[Any], judged: _Judged) -> list[Bound]:
    """Returns journal entries for messages outside of the subscription's backlog; `dropped` writes the others."""
    own = {
        id_
        for backlog, held in judged.held.items()
        if backlog.subscription_id == asked.subscription_id
        for id_ in held
    }
    others = [
        dead_letter
        for dead_letter in dead_letters
        if (dead_letter.source_shard_id, dead_letter.source_seq) not in own
    ]
    return journal_writes(asked, others, Event.ACKED, DISCARDED)
