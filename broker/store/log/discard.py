"""Discard: messages are dropped that a subscription has out, or that lie among its dead letters (G2).

One transaction, of which the caller begins and ends the rest.  Which cursors it needs is found first; they are
locked at once and in one order, then it is found again what there is: a letter that was made, or has come back,
meanwhile is seen.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from broker.domain.discard import IN_TURN, Outcome
from broker.domain.errors import Aborted
from broker.domain.journal import Author
from broker.domain.redrive import Chosen
from broker.store.driver import statements
from broker.store.driver.by_shard import run_by_shard
from broker.store.driver.hot_connection import Bound, HotConnection
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.chosen_letters import read_letters
from broker.store.log.piles import Hold, Pile, lock_letters, lock_piles

_LOCATE_MESSAGES = statements.hot("locate_messages")
_FIND_LETTERS = statements.hot("find_letters")
_NAME_PILES = statements.hot("name_piles")

Id = tuple[int, int]  # shard, sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """Of a subscription, whose own messages are in `shard_ids`.  `consumable`: the subscriptions that its letters
    may be taken out of.
    """

    subscription_id: int
    shard_ids: Collection[int]
    ids: Sequence[Id]
    consumable: Collection[int]
    author: Author
    now: datetime


@dataclass(frozen=True, slots=True)
class Done:
    """`woken`: the subscriptions that may have something to claim now."""

    outcomes: Mapping[Id, Outcome]
    left_alone: Collection[str]
    woken: Collection[int]


@dataclass(slots=True)
class _Found:
    """`own`: the subscription's messages, by id.  `letters`: of each id that names any."""

    own: Mapping[Id, Any]
    letters: Mapping[Id, Sequence[Any]]

    @property
    def letter_shards(self) -> set[int]:
        return {letter.shard_id for letter in chain.from_iterable(self.letters.values())}

    def of(self, id_: Id, subscription_id: int, pile: Pile) -> list[Any]:
        """What an id means in a pile."""
        found = [letter for letter in self.letters.get(id_, ()) if letter.shard_id == pile.shard_id]
        if id_ in self.own and pile.subscription_id == subscription_id and pile.shard_id == id_[0]:
            found.append(self.own[id_])
        return found

    def all_of(self, asked: Discard, pile: Pile) -> list[Any]:
        """What all ids mean in a pile."""
        return [letter for id_ in asked.ids for letter in self.of(id_, asked.subscription_id, pile)]


@dataclass(slots=True)
class _Judged:
    """What is held, by pile; and of each id what holds of any of its places."""

    outcomes: dict[Id, set[Outcome]] = field(default_factory=dict)
    held: dict[Pile, dict[Id, list[Any]]] = field(default_factory=dict)
    left_alone: set[str] = field(default_factory=set)

    def add(self, id_: Id, outcome: Outcome) -> None:
        self.outcomes.setdefault(id_, set()).add(outcome)


async def find_piles(connection: HotConnection, asked: Discard) -> list[tuple[int, str]]:
    """The subscriptions in which letters may lie that are asked for: id and name."""
    found = await _find(connection, asked)
    [rows] = await connection.run((_NAME_PILES, {"shard_ids": sorted(found.letter_shards)}))
    return [(row.subscription_id, row.name) for row in rows]


async def find_letters(connection: HotConnection, asked: Discard) -> list[Any]:
    """Those that any of the ids names."""
    found = await _find(connection, asked)
    return list({(each.shard_id, each.seq): each for some in found.letters.values() for each in some}.values())


async def choose_letters(
    connection: HotConnection, *, chosen: Chosen, shard_id: int, from_seq: int, most: int
) -> tuple[list[int], int | None]:
    """The sequences of messages in a shard whose letters are chosen; where to go on (None: that was all)."""
    asked = {
        "source_shard_id": shard_id,
        "subscription_id": chosen.subscription_id,
        "from_seq": from_seq,
        "since": chosen.since,
        "until": chosen.until,
        "reasons": list(chosen.reasons),
        "id_shards": [],
        "id_seqs": [],
        "filter_path": chosen.filter_path,
        "body_path": chosen.body_path,
        "max_scanned": most,
    }
    rows = await read_letters(connection, asked)
    seqs = list(dict.fromkeys(row.source_seq for row in rows if row.matches))
    return seqs, rows[-1].source_seq + 1 if len(rows) == most else None


async def discard(connection: HotConnection, asked: Discard, attempt_ids: AttemptIds) -> Done:
    """Within the caller's transaction.  Raises Aborted: letters have come to where nothing is locked."""
    found = await _find(connection, asked)
    locked_shards = found.letter_shards
    by_shard = await lock_piles(
        connection,
        shard_ids=sorted(locked_shards),
        own=(asked.subscription_id, sorted({shard_id for shard_id, _ in asked.ids} & {*asked.shard_ids})),
        consumable={*asked.consumable, asked.subscription_id},
        now=asked.now,
    )
    for shard_id, piles in by_shard.items():  # what may be given up just now: it is known then whether it was
        own = [message for message in found.own.values() if message.shard_id == shard_id]
        letters = [each for some in found.letters.values() for each in some if each.shard_id == shard_id]
        for pile in piles:
            if pile.may_consume:
                await pile.look_ahead(connection, found.all_of(asked, pile))
        await lock_letters(connection, piles, [*own, *letters])
    again = await _find(connection, asked)
    if _names(again) != _names(found):
        raise Aborted("Messages were given up, or came back, meanwhile; it is tried again.")
    piles = list(chain.from_iterable(by_shard.values()))
    judged = _judge(asked, found, piles)
    writes = _writes(asked, judged, attempt_ids)
    if writes:
        await connection.run(*writes)
    known = {*found.own, *found.letters}
    outcomes = {
        id_: next((each for each in IN_TURN if each in judged.outcomes.get(id_, ())), _nowhere(id_ in known))
        for id_ in asked.ids
    }
    return Done(outcomes, judged.left_alone, {pile.subscription_id for pile in judged.held})


def _nowhere(is_known: bool) -> Outcome:
    return Outcome.ALREADY_DONE if is_known else Outcome.UNKNOWN


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
    [rows] = await connection.run((_FIND_LETTERS, by_id))
    letters: dict[Id, list[Any]] = {}
    ids = {*asked.ids}
    for row in rows:
        for id_ in {(row.shard_id, row.seq), (row.source_shard_id, row.source_seq)} & ids:
            letters.setdefault(id_, []).append(row)
    return _Found(own, letters)


def _names(found: _Found) -> set[Id]:
    return {(each.shard_id, each.seq) for some in found.letters.values() for each in some}


def _judge(asked: Discard, found: _Found, piles: Sequence[Pile]) -> _Judged:
    judged = _Judged()
    for pile in piles:
        for id_ in asked.ids:
            for letter in found.of(id_, asked.subscription_id, pile):
                if pile.holds(letter, asked.now) not in (Hold.OUT, Hold.HELD):
                    continue
                if pile.may_consume:
                    judged.held.setdefault(pile, {}).setdefault(id_, []).append(letter)
                else:
                    judged.add(id_, Outcome.LEFT_ALONE)
                    judged.left_alone.add(pile.name)
    return judged


def _writes(asked: Discard, judged: _Judged, attempt_ids: AttemptIds) -> list[Bound]:
    writes: list[Bound] = []
    for pile, held in judged.held.items():
        until = pile.go_past(list(chain.from_iterable(held.values())))
        reached = []
        for id_, letters in held.items():
            for letter in letters:
                if not pile.reaches(letter, until):
                    judged.add(id_, Outcome.WAITING)
                elif pile.passes(letter):
                    judged.add(id_, Outcome.DISCARDED)
                    reached.append(letter)
        writes += pile.dropped(reached, attempt_ids, asked.now, asked.author)
    return writes
