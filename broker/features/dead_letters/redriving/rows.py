"""Redrives dead letters: delivers their messages again to the subscription that dead-lettered them, or publishes
them on another topic (G2).

A step is part of a transaction that the caller begins and commits.  It handles messages in the order of the log,
which is also the order of their keys.  For each message it writes a row of `delivery_attempts` that was never
handed out, with the message's own sequence: so the message keeps its id, and no other subscription receives it.
The dead letters are deleted.

    find the shards of the dead letters ──► lock their cursors and the subscription's own ──► read the dead letters
      ──► lock the rows that hold them ──► decide ──► write

Messages that the log still has are not copied: no partition is dropped before this commits (hold_retention).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from broker.core.backlog.delivery_state import BACKLOG, DeliveryState
from broker.core.backlog.locked_backlog import Located, LockedBacklog, lock_backlogs, lock_delivery_rows
from broker.core.backlog.outcome import Outcome
from broker.core.log.retracted_sequences import read_retracted
from broker.core.process.attempt_ids import AttemptIds
from broker.core.records.journal import journal_statement
from broker.db.driver import statements
from broker.db.driver.by_shard import by_shard
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.locks import HOLD_RETENTION
from broker.features.dead_letters.chosen import Chosen
from broker.features.dead_letters.dead_letter_groups import (
    Group,
    LockedBacklogs,
    Recipient,
    asked_of,
    judge,
    offer,
    read_groups,
    read_messages,
)
from broker.features.dead_letters.redriving.lost_dead_letters import put_back
from broker.model.errors import Aborted, FailedPrecondition
from broker.model.journal import Author, Event, ranges_of, rows_of

_READ_DEAD_LETTER_SHARDS = statements.hot("read_dead_letter_shards")
_FIND_LOGGED = statements.hot("find_logged")
_DELETE_REDRIVEN_DEAD_LETTERS = statements.hot("delete_redriven_dead_letters")
_LIST_DEAD_LETTER_SUBSCRIPTIONS = statements.hot("list_dead_letter_subscriptions")
_MAX_SCANNED = 1_000  # dead letters that a step reads, some of which a filter may leave out
_IN_BACKLOG = BACKLOG | {DeliveryState.EXPIRED}  # a claim has yet to let an expired message go
_MORE = 20  # additional dead letters, as the last message may have several


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """A step in one shard of the subscription, from a sequence on.

    `consumable`: the subscriptions from which dead letters may be removed.  `recipient`: the topic to which the
    messages are sent (None: they return to the subscription).
    """

    chosen: Chosen
    shard_id: int
    from_seq: int
    max_messages: int
    ordered: bool
    consumable: Collection[int]
    author: Author
    now: datetime
    recipient: Recipient | None = None


@dataclass(frozen=True, slots=True)
class Redriven:
    """The outcome for each message, by sequence.  `next_seq`: where the next step begins (None: there is none).

    `woken`: the subscriptions for which messages may be claimed now.
    """

    outcomes: Mapping[int, Outcome]
    next_seq: int | None
    woken: Collection[int] = ()


async def redrive(connection: HotConnection, step: Redrive, attempt_ids: AttemptIds) -> Redriven:
    """Runs one step within the caller's transaction, which has read nothing of the log yet.

    Raises FailedPrecondition (no cursor: the subscription is gone or detached), Aborted.
    """
    own, backlogs = await _lock_cursors(connection, step)
    groups, next_seq = await read_groups(connection, _asked(step))
    if len(groups) > step.max_messages:
        groups = groups[: step.max_messages]
        next_seq = groups[-1].seq + 1
    if not {dead_letter.shard_id for group in groups for dead_letter in group.dead_letters} <= backlogs.keys():
        raise Aborted("Messages were dead-lettered meanwhile; it is tried again.")
    await judge(connection, groups, backlogs, step.now)
    groups = _chosen_of(step, groups)
    if not groups:
        return Redriven({}, next_seq)
    logged: set[int] = set()
    if step.recipient is None:
        logged = await _decide(connection, step, groups, own)
    else:
        await _leave_retracted(connection, step.shard_id, groups)
        sent = [group for group in groups if group.outcome is None]
        fitting = await read_messages(connection, step.shard_id, groups, sent)
        if fitting < len(groups):
            groups, next_seq = groups[:fitting], groups[fitting].seq
    sources = _sources(own, backlogs)
    cut = _go_past(groups, own, sources)
    if cut < len(groups):  # some are too far ahead of a cursor: it moves, and the next step goes on
        groups, next_seq = groups[:cut], groups[cut].seq
    if step.recipient is not None:
        await offer(step.recipient, groups)
    writes = [
        *_takes_out(step, groups, own, sources, attempt_ids),
        *_brings_back(step, groups, own, logged, attempt_ids),
        *_journal_writes(step, groups),
    ]
    await _write(connection, step, groups, writes)
    woken = {backlog.subscription_id for each in backlogs.values() for backlog in each} | {
        step.chosen.subscription_id
    }
    outcomes = {group.seq: group.outcome for group in groups if group.outcome is not None}
    return Redriven(outcomes, next_seq, woken)


async def _write(
    connection: HotConnection, step: Redrive, groups: Sequence[Group], writes: Sequence[Bound]
) -> None:
    """Writes the changes of a step.  Raises Aborted if another transaction has changed the dead letters."""
    forgotten = [dead_letter for group in groups if group.goes for dead_letter in group.dead_letters]
    forgetting = by_shard(connection, _DELETE_REDRIVEN_DEAD_LETTERS, _named(forgotten)) if forgotten else []
    results = await connection.run(*writes, *forgetting) if writes or forgetting else []
    if sum(map(len, results[len(writes) :])) != len(forgotten):
        raise Aborted("Somebody else was at these dead letters; it is tried again.")
    if step.recipient is not None:
        await step.recipient.append(connection)


def _asked(step: Redrive) -> dict[str, Any]:
    return asked_of(step.chosen, shard_id=step.shard_id, from_seq=step.from_seq, max_scanned=_max_scanned(step))


def _max_scanned(step: Redrive) -> int:
    return _MAX_SCANNED if step.chosen.filter_path is not None else step.max_messages + _MORE


async def _lock_cursors(
    connection: HotConnection, step: Redrive
) -> tuple[LockedBacklog, dict[int, list[LockedBacklog]]]:
    """Locks the cursor of the subscription and all cursors of the shards that have its dead letters, in one order.

    Raises FailedPrecondition.
    """
    _, rows = await connection.run((HOLD_RETENTION, {}), (_READ_DEAD_LETTER_SHARDS, _asked(step)))
    shard_ids = [row.shard_id for row in rows]
    owner = step.chosen.subscription_id
    locked = await lock_backlogs(
        connection, shard_ids=shard_ids, own=(owner, [step.shard_id]), consumable=step.consumable, now=step.now
    )
    own = [backlog for backlog in locked.get(step.shard_id, ()) if backlog.subscription_id == owner]
    if not own:
        raise FailedPrecondition("The subscription is detached, or was deleted.")
    return own[0], {shard_id: locked.get(shard_id, []) for shard_id in shard_ids}


def _chosen_of(step: Redrive, groups: Sequence[Group]) -> list[Group]:
    """Returns the groups that can be acted on or were named.  For some of them the outcome is known by then."""
    chosen = []
    for group in groups:
        if group.is_outstanding:
            group.outcome = Outcome.OUTSTANDING
        elif step.chosen.takes_resolved and not group.dead_letters:
            group.outcome = Outcome.EDITED
        elif not group.is_chosen(step.chosen):
            continue
        chosen.append(group)
    return chosen


async def _decide(
    connection: HotConnection, step: Redrive, groups: Sequence[Group], own: LockedBacklog
) -> set[int]:
    """Decides the outcome of the other groups.  Returns the sequences that the log still has."""
    open_groups = [group for group in groups if group.outcome is None]
    if not open_groups:
        return set()
    seqs = [group.seq for group in open_groups]
    times = [group.dead_letters[0].source_publish_time for group in open_groups]
    [found] = await connection.run(
        (_FIND_LOGGED, {"shard_id": step.shard_id, "publish_times": times, "seqs": seqs})
    )
    logged = {row.seq: row for row in found}
    messages = {}
    for group in open_groups:
        row = logged.get(group.seq)
        group.ordering_key = _key_of(group.dead_letters) if row is None else row.ordering_key
        expires_at = None if row is None else row.expires_at
        time = group.dead_letters[0].source_publish_time
        messages[group.seq] = Located(group.seq, time, group.ordering_key, expires_at)
    there = {seq for seq in logged if own.delivers_again(messages[seq], step.now)}
    await own.read_ahead(connection, [message for seq, message in messages.items() if seq not in there])
    await lock_delivery_rows(connection, [own], list(messages.values()))
    missing = [group.seq for group in open_groups if group.seq not in logged]
    retracted = await read_retracted(connection, shard_id=step.shard_id, seqs=missing) if missing else ()
    for group in open_groups:
        message = messages[group.seq]
        if group.seq in retracted:
            group.outcome = Outcome.RETRACTED
        elif group.seq in logged and own.delivers_again(message, step.now):
            group.outcome = Outcome.ALREADY_THERE
        elif own.is_taken(message, step.now):
            group.outcome = Outcome.OUTSTANDING
        elif group.seq in logged or any(dead_letter.is_there for dead_letter in group.dead_letters):
            group.outcome = Outcome.REDRIVEN
            group.again = message if own.state(message, step.now) in _IN_BACKLOG else None
        else:
            group.outcome = Outcome.GONE
    return set(logged)


async def _leave_retracted(connection: HotConnection, shard_id: int, groups: Sequence[Group]) -> None:
    """Skips retracted messages.  A retraction locks the same cursors, so it commits before or after this step."""
    open_seqs = [group.seq for group in groups if group.outcome is None]
    retracted = await read_retracted(connection, shard_id=shard_id, seqs=open_seqs)
    for group in groups:
        if group.outcome is None and group.seq in retracted:
            group.outcome = Outcome.RETRACTED


def _sources(own: LockedBacklog, backlogs: LockedBacklogs) -> list[LockedBacklog]:
    """Returns the backlogs from which messages may be removed."""
    of_dead_letters = [backlog for of_shard in backlogs.values() for backlog in of_shard if backlog.may_consume]
    return of_dead_letters if own in of_dead_letters else [*of_dead_letters, own]


def _dead_letters_in(group: Group, backlog: LockedBacklog) -> list[Any]:
    if not (group.goes and backlog.may_consume):
        return []
    return [dead_letter for dead_letter in group.dead_letters if dead_letter.shard_id == backlog.shard_id]


def _again_in(group: Group, backlog: LockedBacklog, own: LockedBacklog) -> list[Any]:
    return [group.again] if backlog is own and group.goes and group.again is not None else []


def _go_past(groups: Sequence[Group], own: LockedBacklog, sources: Sequence[LockedBacklog]) -> int:
    """Lets the cursors pass the messages to remove.  Returns how many groups they can all pass in this step."""
    count = len(groups)
    for backlog in sources:
        removed = [[*_dead_letters_in(group, backlog), *_again_in(group, backlog, own)] for group in groups]
        until = backlog.go_past(list(chain.from_iterable(removed)))
        if until is not None:
            beyond = (n for n, some in enumerate(removed) if any(message.seq > until for message in some))
            count = min(count, next(beyond))
    return count


def _takes_out(
    step: Redrive,
    groups: Sequence[Group],
    own: LockedBacklog,
    sources: Sequence[LockedBacklog],
    attempt_ids: AttemptIds,
) -> Iterator[Bound]:
    answer = "" if step.recipient is None else step.recipient.name
    for backlog in sources:
        dead_letters = [dead_letter for group in groups for dead_letter in _dead_letters_in(group, backlog)]
        dead_letters = [dead_letter for dead_letter in dead_letters if backlog.is_free(dead_letter, step.now)]
        again = [message for group in groups for message in _again_in(group, backlog, own)]
        yield from backlog.removed([*dead_letters, *again], attempt_ids, step.now)
        if dead_letters:
            journaled = ranges_of(sorted(dead_letter.seq for dead_letter in dead_letters))
            owner = backlog.subscription_id
            rows = rows_of(None, owner, Event.WITHDRAWN, 0, journaled, author=step.author, answer=answer)
            yield journal_statement(backlog.shard_id, list(rows), step.now)


def _brings_back(
    step: Redrive, groups: Sequence[Group], own: LockedBacklog, logged: Collection[int], attempt_ids: AttemptIds
) -> Iterator[Bound]:
    back = [group for group in groups if group.outcome is Outcome.REDRIVEN]
    if not back:
        return
    lost = _lost(back, logged)
    if lost:
        yield put_back(step.shard_id, lost)
    messages = [Located(group.seq, group.dead_letters[0].source_publish_time, group.ordering_key) for group in back]
    rows = own.pending_rows(messages, redriven=True)
    yield from rows.statements(attempt_ids, step.now)
    journaled = rows_of(
        None,
        step.chosen.subscription_id,
        Event.REDRIVEN,
        0,
        ranges_of(group.seq for group in back),
        author=step.author,
    )
    yield journal_statement(step.shard_id, list(journaled), step.now)


def _journal_writes(step: Redrive, groups: Sequence[Group]) -> Iterator[Bound]:
    """Yields the journal entries of messages that are sent."""
    sent = [group.seq for group in groups if group.outcome is Outcome.SENT]
    if sent and step.recipient is not None:
        owner, where = step.chosen.subscription_id, step.recipient.name
        journaled = rows_of(None, owner, Event.WITHDRAWN, 0, ranges_of(sent), author=step.author, answer=where)
        yield journal_statement(step.shard_id, list(journaled), step.now)


def _key_of(dead_letters: Sequence[Any]) -> str | None:
    """Returns the ordering key of a message that the log no longer has: its dead letters have the same."""
    return next((dead_letter.ordering_key for dead_letter in dead_letters if dead_letter.is_there), None)


def _lost(groups: Sequence[Group], logged: Collection[int]) -> list[Group]:
    """Returns the groups that come back and are no longer in the log."""
    return [group for group in groups if group.outcome is Outcome.REDRIVEN and group.seq not in logged]


def _named(dead_letters: Sequence[Any]) -> dict[str, Any]:
    return {
        "shard_ids": [dead_letter.shard_id for dead_letter in dead_letters],
        "publish_times": [dead_letter.publish_time for dead_letter in dead_letters],
        "seqs": [dead_letter.seq for dead_letter in dead_letters],
    }


async def list_dead_letter_subscriptions(
    connection: HotConnection, *, subscription_id: int, shard_ids: Sequence[int]
) -> list[tuple[int, str]]:
    """Returns id and name of the subscriptions that read the shards that have dead letters of a subscription."""
    asked = {"subscription_id": subscription_id, "source_shard_ids": list(shard_ids)}
    [rows] = await connection.run((_LIST_DEAD_LETTER_SUBSCRIPTIONS, asked))
    return [(row.subscription_id, row.name) for row in rows]
