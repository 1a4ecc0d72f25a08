"""Dead letters of a subscription by the messages that they were, and which of them can be acted on (G2).

All that counts, lists, redrives and discards dead letters chooses them here.  Who changes something reads the same
behind locks (store/log/redrive.py, store/log/discard.py).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from typing import Any

from broker.domain.dead_letter_list import MAX_LETTERS
from broker.domain.dead_letter_state import DeadLetterState, Resolution, Resolved, can_be_acted_on, kept_since
from broker.domain.redrive import Chosen
from broker.store.driver import statements
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.letter_groups import Group
from broker.store.log.letters_on_nodes import read_on_nodes
from broker.store.log.locked_backlog import LockedBacklog, lock_backlogs, lock_delivery_rows

_READ_LETTERS = statements.hot("read_letters")
_READ_LETTER_TOPICS = statements.hot("read_letter_topics")
_COUNT_LETTERS = statements.hot("count_letters")

_CHUNK = 500  # letters that are read at a time

LockedBacklogs = Mapping[int, Sequence[LockedBacklog]]  # by shard


@dataclass(frozen=True, slots=True)
class ChosenGroups:
    """Messages with their letters, of which a filter matches any; `next_seq`: where to go on (None: that was all).

    `scanned`: letters that were read.  `backlogs` and `topics` are those of the shards in which they lie.
    """

    groups: Sequence[Group]
    next_seq: int | None
    scanned: int
    backlogs: LockedBacklogs
    topics: Mapping[int, Any]

    @property
    def left_out(self) -> int:
        """Letters that were read, of messages that the filter leaves out."""
        return self.scanned - sum(group.letter_count for group in self.groups)


@dataclass(frozen=True, slots=True)
class LetterCount:
    """`outstanding` of the messages a subscription of their topic has just now, and a redrive would leave alone.

    `is_at_most`: only the first MAX_LETTERS letters were looked at, and all later ones count.
    """

    messages: int
    outstanding: int
    is_at_most: bool


def choice(chosen: Chosen) -> dict[str, Any]:
    """The parameters that say which letters are chosen but for the filter."""
    return {
        "subscription_id": chosen.subscription_id,
        "since": chosen.since,
        "until": chosen.until,
        "reasons": list(chosen.reasons),
        "id_shards": [shard_id for shard_id, _ in chosen.ids],
        "id_seqs": [seq for _, seq in chosen.ids],
    }


def asked_of(chosen: Chosen, *, shard_id: int, from_seq: int, max_scanned: int) -> dict[str, Any]:
    """The parameters of read_letters.sql."""
    return {
        **choice(chosen),
        "source_shard_id": shard_id,
        "from_seq": from_seq,
        "filter_path": chosen.filter_path,
        "body_path": chosen.body_path,
        "max_scanned": max_scanned,
    }


async def read_letters(connection: HotConnection, asked: Mapping[str, Any]) -> list[Any]:
    """As read_letters.sql says."""
    if connection.is_distributed:
        return await read_on_nodes(connection, asked)
    [rows] = await connection.run((_READ_LETTERS, dict(asked)))
    return rows


def grouped(letters: Sequence[Any], max_scanned: int) -> tuple[list[Group], int | None]:
    """The messages that these letters were, and where to go on (None: there are no more letters)."""
    groups = [Group(seq, list(some)) for seq, some in groupby(letters, lambda letter: letter.source_seq)]
    is_all = len(letters) < max_scanned
    if not is_all and len(groups) > 1:
        groups.pop()  # it may have more letters
    next_seq = None if is_all else groups[-1].seq + 1
    return [group for group in groups if any(letter.matches for letter in group.letters)], next_seq


async def read_letter_topics(connection: HotConnection, shard_ids: Sequence[int]) -> dict[int, Any]:
    """The topics that have some shards, as far as they exist."""
    [rows] = await connection.run((_READ_LETTER_TOPICS, {"shard_ids": list(shard_ids)}))
    return {row.shard_id: row for row in rows}


def resolved_of(letter: Any) -> Resolved | None:
    """How a letter was resolved, as its record says (None: not at all)."""
    if letter.resolution is None:
        return None
    successor = None if letter.successor_shard is None else (letter.successor_shard, letter.successor_seq)
    return Resolved(
        resolution=Resolution(letter.resolution),
        at=letter.resolved_at,
        by=letter.resolved_by or "",
        successor=successor,
    )


def dead_letter_state(
    letter: Any, backlogs: LockedBacklogs, topics: Mapping[int, Any], now: datetime
) -> DeadLetterState:
    topic = topics.get(letter.shard_id)
    since = kept_since(None if topic is None else topic.retention, now)
    states = [backlog.state(letter, now) for backlog in backlogs.get(letter.shard_id, ())]
    return DeadLetterState(letter.resolution, letter.publish_time >= since, states)


def judge(groups: Sequence[Group], backlogs: LockedBacklogs, topics: Mapping[int, Any], now: datetime) -> None:
    """Note which messages can be acted on; from then on a group is without the letters that were edited."""
    for group in groups:
        newest_first = sorted(group.letters, key=lambda letter: letter.publish_time, reverse=True)
        group.is_open = can_be_acted_on(dead_letter_state(letter, backlogs, topics, now) for letter in newest_first)
        group.letter_count = len(group.letters)
        group.letters = [letter for letter in group.letters if letter.resolution != Resolution.EDITED]


def is_outstanding(group: Group, backlogs: LockedBacklogs, now: datetime) -> bool:
    """Whether a consumer has one of its letters, or another one of the same response and ordering key, of a
    subscription that letters may be taken out of.
    """
    return any(
        backlog.may_consume and backlog.has(letter, now) and not backlog.is_free(letter, now)
        for letter in group.letters
        for backlog in backlogs.get(letter.shard_id, ())
    )


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
    """The next messages of a shard whose letters are chosen, and which of them can be acted on.  Locks nothing.

    `consumable`: the subscriptions that letters may be taken out of.
    """
    asked = asked_of(chosen, shard_id=shard_id, from_seq=from_seq, max_scanned=max_scanned)
    letters = await read_letters(connection, asked)
    groups, next_seq = grouped(letters, max_scanned)
    mine = list(chain.from_iterable(group.letters for group in groups))
    shard_ids = sorted({letter.shard_id for letter in mine})
    if not shard_ids:
        return ChosenGroups(groups, next_seq, len(letters), {}, {})
    topics = await read_letter_topics(connection, shard_ids)
    backlogs = await lock_backlogs(connection, shard_ids=shard_ids, consumable=consumable, now=now, locked=False)
    for of_shard in backlogs.values():
        in_shard = [letter for letter in mine if letter.shard_id == of_shard[0].shard_id]
        await lock_delivery_rows(connection, of_shard, in_shard, locked=False)
        for backlog in of_shard:
            await backlog.ask_filter(connection, in_shard)
    judge(groups, backlogs, topics, now)
    scanned = len(letters) if next_seq is None else sum(letter.source_seq < next_seq for letter in letters)
    return ChosenGroups(groups, next_seq, scanned, backlogs, topics)


async def count_chosen(
    connection: HotConnection,
    chosen: Chosen,
    *,
    shard_ids: Sequence[int],
    consumable: Collection[int],
    now: datetime,
) -> LetterCount:
    """How many messages are chosen that can be acted on."""
    messages = outstanding = scanned = 0
    read = partial(read_chosen, connection, chosen, now=now, consumable=consumable)
    for number, shard_id in enumerate(sorted(shard_ids)):
        next_seq: int | None = 0
        while next_seq is not None:
            if scanned >= MAX_LETTERS:
                rest = await count_letters(connection, chosen=chosen, shard_ids=[shard_id], from_seq=next_seq)
                later = await count_letters(connection, chosen=chosen, shard_ids=sorted(shard_ids)[number + 1 :])
                more = sum(rest.values()) + sum(later.values())
                return LetterCount(messages + more, outstanding, is_at_most=more > 0)
            found = await read(shard_id=shard_id, from_seq=next_seq)
            messages += sum(group.is_chosen(chosen) for group in found.groups)
            outstanding += sum(is_outstanding(group, found.backlogs, now) for group in found.groups)
            scanned += found.scanned
            next_seq = found.next_seq
    return LetterCount(messages, outstanding, is_at_most=False)


async def count_letters(
    connection: HotConnection, *, chosen: Chosen, shard_ids: Sequence[int], from_seq: int = 0
) -> dict[str, int]:
    """How many messages are chosen but for the filter, by reason, whether or not they can be acted on."""
    asked = {**choice(chosen), "source_shard_ids": list(shard_ids), "from_seq": from_seq}
    [rows] = await connection.run((_COUNT_LETTERS, asked))
    return {row.reason: row.messages for row in rows}
