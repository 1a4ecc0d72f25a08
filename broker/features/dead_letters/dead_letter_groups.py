"""Groups dead letters by their source message, and decides which of them can be acted on (G2).

Counts, lists, redrives and discards of dead letters all choose them here.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, Protocol

import msgspec

from broker.core.backlog.locked_backlog import LockedBacklog, lock_backlogs, lock_delivery_rows
from broker.core.backlog.outcome import Outcome
from broker.db.driver import statements
from broker.db.driver.by_shard import read_sharing
from broker.db.driver.hot_connection import HotConnection
from broker.features.dead_letters.chosen import ADDED, DONE, Chosen
from broker.features.dead_letters.dead_letter_list import MAX_DEAD_LETTERS
from broker.features.dead_letters.dead_letter_state import DeadLetterState, Resolution, Resolved, can_be_acted_on
from broker.model.dead_letter import kept_since
from broker.model.message import NewMessage

_READ_DEAD_LETTERS = statements.hot("read_dead_letters")
_READ_DEAD_LETTER_TOPICS = statements.hot("read_dead_letter_topics")
_COUNT_DEAD_LETTERS = statements.hot("count_dead_letters")
_READ_BODIES = statements.hot("read_bodies")

_MAX_BYTES = 4_000_000  # of the messages that a step sends, or one message that is larger
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode
_CHUNK = 500  # dead letters that are read at a time

LockedBacklogs = Mapping[int, Sequence[LockedBacklog]]  # by shard


class Recipient(Protocol):
    """A topic to which a redrive sends messages."""

    name: str

    async def take(self, messages: Sequence[NewMessage]) -> Sequence[int]:
        """Takes messages; called once.  Returns the numbers of those that the topic accepts."""

    async def append(self, connection: HotConnection) -> None:
        """Publishes what it has taken in the transaction of `connection`, last of all, as it locks heads of shards.

        Raises Aborted.
        """


@dataclass(slots=True)
class Group:
    """A message with its dead letters: it has several if it was sought back and failed again.

    `is_open`: it can be acted on (features/dead_letters/dead_letter_state.py).  `is_outstanding`: a consumer has
    one of its dead letters, or another one of the same response and ordering key, of a subscription from which dead
    letters may be removed.
    """

    seq: int
    dead_letters: Sequence[Any]
    is_open: bool = False
    is_outstanding: bool = False
    dead_letter_count: int = 0  # with those that were edited, which `dead_letters` are without once that is known
    outcome: Outcome | None = None
    ordering_key: str | None = None  # known once it is decided what becomes of it
    again: Any = None  # the message in its subscription's backlog, from which it is removed before it comes back
    sent: NewMessage | None = None

    def is_chosen(self, chosen: Chosen) -> bool:
        """Returns whether a redrive handles the message.  Messages that are named are handled even if they were
        resolved.
        """
        return self.is_open or (chosen.takes_resolved and bool(self.dead_letters))

    @property
    def goes(self) -> bool:
        """Returns whether its dead letters are deleted; known before the recipient has accepted the message."""
        return self.outcome in DONE or (self.outcome is None and self.sent is not None)


@dataclass(frozen=True, slots=True)
class ChosenGroups:
    """Messages with dead letters that a filter matches.

    `next_seq`: the sequence at which to continue (None: at the end).  `scanned`: the number of dead letters that
    were read.  `backlogs` and `topics`: those of their shards.
    """

    groups: Sequence[Group]
    next_seq: int | None
    scanned: int
    backlogs: LockedBacklogs
    topics: Mapping[int, Any]

    @property
    def left_out(self) -> int:
        """Returns the number of dead letters that were read and whose messages do not match the filter."""
        return self.scanned - sum(group.dead_letter_count for group in self.groups)


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """The number of messages that can be redriven.  A redrive skips those that are `outstanding`.

    `is_at_most`: only the first MAX_DEAD_LETTERS dead letters were read, and all later ones are counted.
    """

    messages: int
    outstanding: int
    is_at_most: bool


def choice(chosen: Chosen) -> dict[str, Any]:
    """Returns the parameters that choose dead letters, without the filter."""
    return {
        "subscription_id": chosen.subscription_id,
        "since": chosen.since,
        "until": chosen.until,
        "reasons": list(chosen.reasons),
        "id_shards": [shard_id for shard_id, _ in chosen.ids],
        "id_seqs": [seq for _, seq in chosen.ids],
    }


def asked_of(chosen: Chosen, *, shard_id: int, from_seq: int, max_scanned: int) -> dict[str, Any]:
    """Returns the parameters of read_dead_letters.sql."""
    return {
        **choice(chosen),
        "source_shard_id": shard_id,
        "from_seq": from_seq,
        "filter_path": chosen.filter_path,
        "body_path": chosen.body_path,
        "max_scanned": max_scanned,
    }


async def read_dead_letters(connection: HotConnection, asked: Mapping[str, Any]) -> list[Any]:
    """Returns the rows of read_dead_letters.sql."""
    [rows] = await connection.run((_READ_DEAD_LETTERS, dict(asked)))
    return rows


async def read_groups(connection: HotConnection, asked: Mapping[str, Any]) -> tuple[list[Group], int | None]:
    """Reads the next messages with their dead letters.  Returns the sequence at which to continue,
    None at the end.
    """
    return grouped(await read_dead_letters(connection, asked), asked["max_scanned"])


def grouped(dead_letters: Sequence[Any], max_scanned: int) -> tuple[list[Group], int | None]:
    """Groups dead letters by message.  Returns the sequence at which to continue, None at the end."""
    groups = [
        Group(seq, list(some)) for seq, some in groupby(dead_letters, lambda dead_letter: dead_letter.source_seq)
    ]
    is_all = len(dead_letters) < max_scanned
    if not is_all and len(groups) > 1:
        groups.pop()  # it may have more dead letters
    next_seq = None if is_all else groups[-1].seq + 1
    return [group for group in groups if any(dead_letter.matches for dead_letter in group.dead_letters)], next_seq


async def read_dead_letter_topics(connection: HotConnection, shard_ids: Sequence[int]) -> dict[int, Any]:
    """Returns the topics of shards, as far as they exist."""
    [rows] = await connection.run((_READ_DEAD_LETTER_TOPICS, {"shard_ids": list(shard_ids)}))
    return {row.shard_id: row for row in rows}


def resolved_of(dead_letter: Any) -> Resolved | None:
    """Returns how a dead letter was resolved, according to its record (None: it was not)."""
    if dead_letter.resolution is None:
        return None
    successor = (
        None if dead_letter.successor_shard is None else (dead_letter.successor_shard, dead_letter.successor_seq)
    )
    return Resolved(
        resolution=Resolution(dead_letter.resolution),
        at=dead_letter.resolved_at,
        by=dead_letter.resolved_by or "",
        successor=successor,
    )


def dead_letter_state(
    dead_letter: Any, backlogs: LockedBacklogs, topics: Mapping[int, Any], now: datetime
) -> DeadLetterState:
    topic = topics.get(dead_letter.shard_id)
    since = kept_since(None if topic is None else topic.retention, now)
    states = [backlog.state(dead_letter, now) for backlog in backlogs.get(dead_letter.shard_id, ())]
    return DeadLetterState(dead_letter.resolution, dead_letter.publish_time >= since, states)


async def judge(
    connection: HotConnection,
    groups: Sequence[Group],
    backlogs: LockedBacklogs,
    now: datetime,
    *,
    locked: bool = True,
) -> Mapping[int, Any]:
    """Reads the state of each dead letter in each backlog, and sets whether messages can be acted on.

    Removes dead letters that were edited from their groups.  Locks rows unless `locked` is false.  Returns the
    topics of the shards.
    """
    for shard_id, of_shard in backlogs.items():
        dead_letters = [
            dead_letter
            for group in groups
            for dead_letter in group.dead_letters
            if dead_letter.shard_id == shard_id
        ]
        for backlog in of_shard:
            if locked and backlog.may_consume:
                await backlog.read_ahead(connection, dead_letters)
        await lock_delivery_rows(connection, of_shard, dead_letters, locked=locked)
        for backlog in of_shard:
            await backlog.ask_filter(connection, dead_letters)
    shard_ids = sorted({dead_letter.shard_id for group in groups for dead_letter in group.dead_letters})
    topics = await read_dead_letter_topics(connection, shard_ids)
    for group in groups:
        newest_first = sorted(group.dead_letters, key=lambda dead_letter: dead_letter.publish_time, reverse=True)
        states = [dead_letter_state(dead_letter, backlogs, topics, now) for dead_letter in newest_first]
        group.is_open = can_be_acted_on(states)
        group.dead_letter_count = len(group.dead_letters)
        group.dead_letters = [
            dead_letter for dead_letter in group.dead_letters if dead_letter.resolution != Resolution.EDITED
        ]
        group.is_outstanding = any(
            backlog.may_consume and backlog.has(dead_letter, now) and not backlog.is_free(dead_letter, now)
            for dead_letter in group.dead_letters
            for backlog in backlogs.get(dead_letter.shard_id, ())
        )
    return topics


async def read_chosen(
    connection: HotConnection,
    chosen: Chosen,
    *,
    shard_id: int,
    from_seq: int,
    now: datetime,
    consumable: Collection[int] = (),
    max_scanned: int = _CHUNK,
) -> ChosenGroups:
    """Reads the next messages of a shard whose dead letters are chosen, and which can be acted on.  Locks nothing.

    `consumable`: the subscriptions from which dead letters may be removed.
    """
    asked = asked_of(chosen, shard_id=shard_id, from_seq=from_seq, max_scanned=max_scanned)
    dead_letters = await read_dead_letters(connection, asked)
    groups, next_seq = grouped(dead_letters, max_scanned)
    shard_ids = sorted({dead_letter.shard_id for group in groups for dead_letter in group.dead_letters})
    if not shard_ids:
        return ChosenGroups(groups, next_seq, len(dead_letters), {}, {})
    backlogs = await lock_backlogs(connection, shard_ids=shard_ids, consumable=consumable, now=now, locked=False)
    topics = await judge(connection, groups, backlogs, now, locked=False)
    scanned = (
        len(dead_letters)
        if next_seq is None
        else sum(dead_letter.source_seq < next_seq for dead_letter in dead_letters)
    )
    return ChosenGroups(groups, next_seq, scanned, backlogs, topics)


async def count_chosen(
    connection: HotConnection,
    chosen: Chosen,
    *,
    shard_ids: Sequence[int],
    consumable: Collection[int],
    now: datetime,
    start: tuple[int, int] = (0, 0),
    max_counted: int | None = None,
) -> DeadLetterCount:
    """Counts the chosen messages that can be acted on, from a shard and sequence on.

    `max_counted`: the number of dead letters to read (None: MAX_DEAD_LETTERS).
    """
    most = max_counted or MAX_DEAD_LETTERS
    shard_ids = sorted(shard_id for shard_id in shard_ids if shard_id >= start[0])
    messages = outstanding = scanned = 0
    read = partial(read_chosen, connection, chosen, now=now, consumable=consumable)
    for number, shard_id in enumerate(shard_ids):
        next_seq: int | None = start[1] if shard_id == start[0] else 0
        while next_seq is not None:
            if scanned >= most:
                rest = await count_dead_letters(connection, chosen=chosen, shard_ids=[shard_id], from_seq=next_seq)
                later = await count_dead_letters(connection, chosen=chosen, shard_ids=shard_ids[number + 1 :])
                more = sum(rest.values()) + sum(later.values())
                return DeadLetterCount(messages + more, outstanding, is_at_most=more > 0)
            found = await read(shard_id=shard_id, from_seq=next_seq)
            messages += sum(group.is_chosen(chosen) for group in found.groups)
            outstanding += sum(group.is_outstanding for group in found.groups)
            scanned += found.scanned
            next_seq = found.next_seq
    return DeadLetterCount(messages, outstanding, is_at_most=False)


async def count_dead_letters(
    connection: HotConnection, *, chosen: Chosen, shard_ids: Sequence[int], from_seq: int = 0
) -> dict[str, int]:
    """Counts chosen messages by reason, without the filter, and whether or not they can be acted on."""
    asked = {**choice(chosen), "source_shard_ids": list(shard_ids), "from_seq": from_seq}
    [rows] = await connection.run((_COUNT_DEAD_LETTERS, asked))
    return {row.reason: row.messages for row in rows}


async def read_messages(
    connection: HotConnection, shard_id: int, groups: Sequence[Group], wanted: Sequence[Group]
) -> int:
    """Reads the `wanted` messages from their dead letters, or else from the log.

    Returns the number of groups that fit into a step.
    """
    positions = [_position(shard_id, group) for group in wanted]
    bodies = await read_dead_letter_bodies(connection, positions)
    for group, (of_shard, _, seq) in zip(wanted, positions, strict=True):
        if (of_shard, seq) not in bodies:
            group.outcome = Outcome.GONE
        elif bodies[of_shard, seq] is None:
            return groups.index(group)
        else:
            group.sent = bodies[of_shard, seq]
    return len(groups)


async def read_dead_letter_bodies(
    connection: HotConnection, positions: Sequence[tuple[int, datetime, int]]
) -> dict[tuple[int, int], NewMessage | None]:
    """Reads source messages, without the attributes that a dead letter adds, by shard and sequence.

    `positions`: shards, publish times and sequences of the dead letters.  A value is None if the message does not
    fit into a step.
    """
    if not positions:
        return {}
    shard_ids, times, seqs = map(list, zip(*positions, strict=True))
    asked = {"shard_ids": shard_ids, "publish_times": times, "seqs": seqs, "max_bytes": _MAX_BYTES}
    rows = await read_sharing(connection, _READ_BODIES, asked)
    return {(row.shard_id, row.seq): _as_it_was(row) if row.fits else None for row in rows}


def _as_it_was(row: Any) -> NewMessage:
    attributes = _decode_attributes(row.attributes)
    return NewMessage(
        data=row.data or b"",
        attributes={key: text for key, text in attributes.items() if key not in ADDED},
        ordering_key=row.ordering_key or "",
    )


def _position(shard_id: int, group: Group) -> tuple[int, datetime, int]:
    """Returns the position from which to read a message."""
    for dead_letter in group.dead_letters:
        if dead_letter.is_there:
            return dead_letter.shard_id, dead_letter.publish_time, dead_letter.seq
    return shard_id, group.dead_letters[0].source_publish_time, group.seq


async def offer(recipient: Recipient, groups: Sequence[Group]) -> None:
    offered = [group for group in groups if group.sent is not None]
    taken = {*await recipient.take([group.sent for group in offered if group.sent is not None])}
    for number, group in enumerate(offered):
        group.outcome = Outcome.SENT if number in taken else Outcome.REFUSED
