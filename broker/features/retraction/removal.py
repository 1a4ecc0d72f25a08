"""Retracts messages: takes them out of the log, in sequence with publishes and between claims (J6).

The steps are part of a transaction that the caller begins and ends:

    remove scheduled messages ──► lock all cursors of the shards ──► find the messages in the log, and earlier
      retractions ──► lock the rows that hold the messages ──► read their states ──► lock the heads ──► remove the
      messages from the log, and from the rows that no consumer has

A message that is not in the log cannot be claimed, whatever refers to it: a cursor that a seek moved back, a
snapshot, a row whose ack deadline passes (docs/decisions/0048).  So claims do not check for retractions.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from broker.core.backlog.locked_backlog import LockedBacklog, lock_backlogs, lock_delivery_rows
from broker.core.backlog.outcome import Outcome
from broker.core.records.journal import journal_statement
from broker.db.driver import statements
from broker.db.driver.by_shard import by_shard, one_by_one, run_by_shard
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.locks import HOLD_RETENTION
from broker.features.retraction.retraction import (
    Retraction,
    StateWhenRetracted,
    check_answers,
    state_when_retracted,
)
from broker.features.retraction.rows import Id, insertions, read_retractions
from broker.model.errors import Aborted
from broker.model.journal import Author, Event, Row, ranges_of, rows_of
from broker.model.message_id import FIRST_ID_SEQ
from broker.model.sequences import from_multirange, to_bits

_TAKE_SCHEDULED_MESSAGES = statements.hot("take_scheduled_messages")
_READ_SEQUENCES = statements.hot("read_sequences")
_LOCATE_MESSAGES = statements.hot("locate_messages")
_READ_HEADS = statements.hot("read_heads")
_FIND_UNMATCHED = statements.hot("find_unmatched")
_ACKNOWLEDGE = statements.hot("acknowledge")
_LET_KEYS_GO = statements.hot("let_keys_go")
_LOCK_HEADS = statements.hot("lock_heads")
_REMOVE_MESSAGES = statements.hot("remove_messages")
_REMOVE_STRAGGLERS = statements.hot_of("remove_messages", "message_batches", "straggler_batches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Messages of one topic to retract.  `appends_to`: the shards to which the caller appends afterwards, in the
    same transaction.
    """

    ids: Sequence[Id]
    author: Author
    now: datetime
    appends_to: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a retraction.  `states`: by subscription name.  `woken`: the subscriptions for which messages
    may be claimed now.  `newest`: when the newest of the messages was published, or accepted (None: there is none).
    """

    outcomes: Mapping[Id, Outcome]
    states: Mapping[str, Mapping[Id, StateWhenRetracted]]
    retractions: Mapping[Id, Retraction]
    woken: Collection[int]
    newest: datetime | None = None


@dataclass(slots=True)
class _Shard:
    """The messages of one shard that are retracted, and its backlogs.

    `messages`: by sequence, the rows of locate_messages.sql.  `states`: by subscription and sequence.  `returned`:
    rows, and the sequences that are taken out of them.
    """

    shard_id: int
    backlogs: Sequence[LockedBacklog]
    messages: Mapping[int, Any] = field(default_factory=dict)
    states: dict[int, dict[int, StateWhenRetracted]] = field(default_factory=dict)
    returned: dict[int, tuple[Any, set[int]]] = field(default_factory=dict)


async def retract(connection: HotConnection, asked: Asked) -> Done:
    """Retracts messages within the caller's transaction, which has read nothing of the log yet.

    Raises InvalidArgument (too many subscriptions for so many messages), Aborted (another transaction has changed
    the same messages).
    """
    await connection.run((HOLD_RETENTION, {}))
    taken, seqs = await _resolved(connection, asked.ids)
    shard_ids = sorted({shard_id for shard_id, _ in seqs})
    backlogs = await lock_backlogs(connection, shard_ids=shard_ids, consumable=(), now=asked.now)
    shards = {shard_id: _Shard(shard_id, backlogs.get(shard_id, ())) for shard_id in shard_ids}
    subscriptions = {backlog.subscription_id for shard in shards.values() for backlog in shard.backlogs}
    check_answers(len(asked.ids), len(subscriptions))
    known, heads = await _find(connection, asked.ids, seqs, shards)
    for shard in shards.values():
        await _lock_rows(connection, shard)
    for shard in shards.values():
        await _judge(connection, shard, asked.now)
    retractions = known | await _write(connection, asked, taken, seqs, shards)
    outcomes = {id_: _outcome(id_, taken, seqs, known, shards, heads) for id_ in asked.ids}
    published = (message.publish_time for shard in shards.values() for message in shard.messages.values())
    newest = max((*taken.values(), *published), default=None)
    return Done(outcomes, _by_name(asked.ids, seqs, known, shards), retractions, _woken(shards), newest)


async def _resolved(connection: HotConnection, ids: Sequence[Id]) -> tuple[dict[Id, datetime], dict[Id, int]]:
    """Removes scheduled messages.  Returns when these were accepted, and the sequences of the others."""
    later = [id_ for id_ in ids if id_[1] > FIRST_ID_SEQ]
    seqs = {id_: id_[1] for id_ in ids if id_[1] <= FIRST_ID_SEQ}
    if not later:
        return {}, seqs
    where = {"shard_ids": [shard_id for shard_id, _ in later], "id_seqs": [id_seq for _, id_seq in later]}
    # In statements of their own: whoever waited for a message's row sees where it came to stand.
    rows = await run_by_shard(connection, _TAKE_SCHEDULED_MESSAGES, where)
    found = await run_by_shard(connection, _READ_SEQUENCES, where)
    taken = {(row.shard_id, row.id_seq): row.accepted_at for row in rows}
    return taken, seqs | {(r.shard_id, r.id_seq): r.seq for r in found}


async def _find(
    connection: HotConnection, ids: Sequence[Id], seqs: Mapping[Id, int], shards: Mapping[int, _Shard]
) -> tuple[dict[Id, Retraction], dict[int, int]]:
    """Notes in each shard which messages its log has.  Returns the earlier retractions, and the heads."""
    where = {"shard_ids": [shard_id for shard_id, _ in seqs], "seqs": list(seqs.values())}
    *found, heads = await connection.run(
        *by_shard(connection, _LOCATE_MESSAGES, where), (_READ_HEADS, {"shard_ids": list(shards)})
    )
    located = list(chain(*found))
    for shard in shards.values():
        shard.messages = {row.seq: row for row in located if row.shard_id == shard.shard_id}
    return await read_retractions(connection, {id_: seqs.get(id_) for id_ in ids}), dict(heads)


# --- how they stand -----------------------------------------------------------------------------------------------


async def _lock_rows(connection: HotConnection, shard: _Shard) -> None:
    """Locks the rows that hold any of the messages, so that acks, nacks and the dead-letter forwarder wait."""
    await lock_delivery_rows(connection, shard.backlogs, list(shard.messages.values()))


async def _judge(connection: HotConnection, shard: _Shard, now: datetime) -> None:
    await _ask_filters(connection, shard)
    for backlog in shard.backlogs:
        states = shard.states[backlog.subscription_id] = {}
        for seq, message in shard.messages.items():
            state = state_when_retracted(backlog.state(message, now), backlog.attempts(message))
            if state is None:
                continue
            states[seq] = state
            row = backlog.row_of(message)
            if row is not None and state is not StateWhenRetracted.OUTSTANDING:
                shard.returned.setdefault(id(row), (row, set()))[1].add(seq)


async def _ask_filters(connection: HotConnection, shard: _Shard) -> None:
    """Reads for all subscriptions with filters at once which messages they match."""
    filtered = {backlog.subscription_id: backlog for backlog in shard.backlogs if backlog.has_filter}
    if not filtered or not shard.messages:
        return
    where = {
        "shard_id": shard.shard_id,
        "subscription_ids": sorted(filtered),
        "publish_times": [message.publish_time for message in shard.messages.values()],
        "seqs": list(shard.messages),
    }
    [rows] = await connection.run((_FIND_UNMATCHED, where))
    unmatched = {(row.subscription_id, row.seq) for row in rows}
    for subscription_id, backlog in filtered.items():
        backlog.note_matching({seq for seq in shard.messages if (subscription_id, seq) not in unmatched})


# --- what is written ----------------------------------------------------------------------------------------------


async def _write(
    connection: HotConnection,
    asked: Asked,
    taken: Collection[Id],
    seqs: Mapping[Id, int],
    shards: Mapping[int, _Shard],
) -> dict[Id, Retraction]:
    """Writes the retractions, and removes the messages from the log and from delivery attempts.

    Raises Aborted (some of the messages are no longer in the log).
    """
    changed = {shard_id for shard_id, shard in shards.items() if shard.messages} | {each for each, _ in taken}
    if not changed:
        return {}
    rows = [write for shard in shards.values() for write in _out_of_rows(shard, asked.now)]
    locking = one_by_one(connection, _LOCK_HEADS, sorted({*changed, *asked.appends_to}))
    locked = chain(*(await connection.run(*rows, *locking))[len(rows) :])
    heads = {row.shard_id: row.head for row in locked}
    await _remove(connection, [shard for shard in shards.values() if shard.messages])
    retractions = {
        id_: _made(asked, id_, seqs.get(id_), shards.get(id_[0]), heads.get(id_[0], 0))
        for id_ in asked.ids
        if id_ in taken or (id_ in seqs and seqs[id_] in shards[id_[0]].messages)
    }
    journaled = [write for shard in shards.values() if shard.messages for write in _journal_writes(shard, asked)]
    await connection.run(*insertions(retractions), *journaled)
    return retractions


def _out_of_rows(shard: _Shard, now: datetime) -> Iterator[Bound]:
    plain: defaultdict[tuple[int, int], set[int]] = defaultdict(set)  # ordinals, by attempt
    lengths: dict[tuple[int, int], int] = {}
    runs = []
    for row, seqs in shard.returned.values():
        ordinals = {n for n, seq in enumerate(from_multirange(row.seqs)) if seq in seqs}
        if row.ordering_key is not None:
            runs.append((row, ordinals))
            continue
        attempt = row.subscription_id, row.attempt_id
        lengths[attempt] = len(row.open)
        plain[attempt] |= ordinals
    if plain:
        attempts = sorted(plain)
        yield (
            _ACKNOWLEDGE,
            {
                "shard_id": shard.shard_id,
                "subscription_ids": [subscription_id for subscription_id, _ in attempts],
                "attempt_ids": [attempt_id for _, attempt_id in attempts],
                "masks": [to_bits(plain[attempt], lengths[attempt]) for attempt in attempts],
            },
        )
    if runs:
        yield (
            _LET_KEYS_GO,
            {
                "shard_id": shard.shard_id,
                "now": now,
                "subscription_ids": [row.subscription_id for row, _ in runs],
                "attempt_ids": [row.attempt_id for row, _ in runs],
                "masks": [to_bits(ordinals, len(row.open)) for row, ordinals in runs],
                "goes_on": [_goes_on(row, ordinals) for row, ordinals in runs],
                "without_retry": [_first_back(row) in ordinals for row, ordinals in runs],
            },
        )


def _goes_on(row: Any, ordinals: Collection[int]) -> bool:
    """Returns whether the rest of a row is delivered without a retry delay, as its deadline has not passed."""
    return row.status != "delivering" and row.open.index("1") in ordinals


def _first_back(row: Any) -> int:
    """Returns the ordinal of the first message that was returned while others of its key are outstanding."""
    return int(row.open.find("1", row.out_count))


async def _remove(connection: HotConnection, shards: Sequence[_Shard]) -> None:
    for shard in shards:
        where = {
            "shard_id": shard.shard_id,
            "publish_times": [message.publish_time for message in shard.messages.values()],
            "seqs": list(shard.messages),
        }
        logged, stragglers = await connection.run((_REMOVE_MESSAGES, where), (_REMOVE_STRAGGLERS, where))
        if {row.seq for row in (*logged, *stragglers)} != {*shard.messages}:
            raise Aborted("Somebody else was at these messages; try it again.")


def _made(asked: Asked, id_: Id, seq: int | None, shard: _Shard | None, head: int) -> Retraction:
    states = {}
    if shard is not None and seq is not None:
        states = {
            subscription_id: some[seq]
            for subscription_id, some in shard.states.items()
            if some.get(seq, StateWhenRetracted.NEVER_DELIVERED) is not StateWhenRetracted.NEVER_DELIVERED
        }
    came = shard is not None and seq is not None
    return Retraction(
        shard_id=id_[0],
        seq=seq,
        publish_time=shard.messages[seq].publish_time if came and shard and seq is not None else asked.now,
        retracted_at=asked.now,
        by=asked.author.principal,
        head=head,
        states=states,
    )


def _journal_writes(shard: _Shard, asked: Asked) -> Iterator[Bound]:
    """Yields journal entries for every subscription that would have received a message, or received it again."""
    rows: list[Row] = []
    for subscription_id, states in shard.states.items():
        left = ranges_of(sorted(seq for seq, state in states.items() if state is not StateWhenRetracted.SETTLED))
        rows += rows_of(None, subscription_id, Event.RETRACTED, 0, left, author=asked.author)
    if rows:
        yield journal_statement(shard.shard_id, rows, asked.now)


# --- what is answered ---------------------------------------------------------------------------------------------


def _outcome(
    id_: Id,
    taken: Collection[Id],
    seqs: Mapping[Id, int],
    known: Mapping[Id, Retraction],
    shards: Mapping[int, _Shard],
    heads: Mapping[int, int],
) -> Outcome:
    if id_ in known:
        return Outcome.ALREADY_RETRACTED
    if id_ in taken or (id_ in seqs and seqs[id_] in shards[id_[0]].messages):
        return Outcome.RETRACTED
    if id_ in seqs and 0 < seqs[id_] <= heads.get(id_[0], 0):
        return Outcome.NOT_RETAINED
    return Outcome.UNKNOWN


def _by_name(
    ids: Sequence[Id], seqs: Mapping[Id, int], known: Mapping[Id, Retraction], shards: Mapping[int, _Shard]
) -> dict[str, dict[Id, StateWhenRetracted]]:
    """Returns states by subscription name; earlier retractions have the states of their time."""
    states: dict[str, dict[Id, StateWhenRetracted]] = {}
    for id_ in ids:
        if id_ not in seqs:
            continue
        seq = seqs[id_]
        for backlog in shards[id_[0]].backlogs:
            cursor = backlog.cursor
            state = shards[id_[0]].states[backlog.subscription_id].get(seq)
            if id_ in known and (cursor.first_seq is None or seq >= cursor.first_seq):
                state = known[id_].states.get(cursor.subscription_id, StateWhenRetracted.NEVER_DELIVERED)
            if state is not None:
                states.setdefault(cursor.name, {})[id_] = state
    return states


def _woken(shards: Mapping[int, _Shard]) -> set[int]:
    return {
        row.subscription_id
        for shard in shards.values()
        for row, _ in shard.returned.values()
        if row.ordering_key is not None
    }
