"""Lists the dead letters of a subscription that can be acted on, and the subscriptions that have them (G2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from broker.db.driver import statements
from broker.db.driver.by_shard import read_sharing
from broker.db.driver.hot_connection import HotConnection
from broker.features.dead_letters.chosen import Chosen
from broker.features.dead_letters.dead_letter_groups import (
    ChosenGroups,
    Group,
    read_chosen,
    read_dead_letter_topics,
)
from broker.features.dead_letters.dead_letter_list import (
    MAX_DEAD_LETTERS,
    DeadLetter,
    DeadLetterList,
    DeadLetterPage,
    DeadLetterPosition,
    Trait,
)
from broker.model.delivery import MAX_RESPONSE_BYTES
from broker.model.message_preview import preview_cost
from broker.model.timestamps import END_OF_TIME, EVER
from broker.model.topic import DELETED_TOPIC

_LIST_DEAD_LETTER_SHARDS = statements.hot("list_dead_letter_shards")
_READ_DEAD_LETTER_MESSAGES = statements.hot("read_dead_letter_messages")

_CHUNK = 500  # dead letters that are read at a time, but for a start
_MORE = 50  # so many more than a page takes, as some have been dealt with

_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDeadLetters:
    """Parameters of a list.

    `filter_path`, `body_path`: the filter (None: all messages match).  `bodies`: whether the data is read.
    """

    subscription_id: int
    shard_ids: Sequence[int]
    filter_path: str | None
    body_path: str | None
    page: DeadLetterPage
    now: datetime
    bodies: bool = True

    @property
    def chosen(self) -> Chosen:
        """Returns the choice that a redrive of the same dead letters would make."""
        reason = self.page.chosen.get(Trait("reason"))
        return Chosen(
            subscription_id=self.subscription_id,
            since=EVER,
            until=END_OF_TIME,
            reasons=() if reason is None else (reason,),
            filter_path=self.filter_path,
            body_path=self.body_path,
        )


async def list_dead_letters(connection: HotConnection, asked: AskedDeadLetters) -> DeadLetterList:
    """Returns a page of messages that can be acted on, each with one of its dead letters.  Locks nothing.

    A page ends when it is full, after MAX_DEAD_LETTERS dead letters, or at the end of the list.
    """
    walk = _Walk(connection, asked)
    start = asked.page.start
    for shard_id in sorted(id_ for id_ in asked.shard_ids if start is None or id_ >= start.shard_id):
        from_seq = start.seq if start is not None and start.shard_id == shard_id else 0
        rest = await walk.shard(shard_id, from_seq)
        if rest is not None:
            return DeadLetterList(walk.found, walk.scanned, walk.resolved, rest)
    return DeadLetterList(walk.found, walk.scanned, walk.resolved, None)


async def list_dead_letter_topics(
    connection: HotConnection, *, subscription_id: int, shard_ids: Sequence[int]
) -> list[str]:
    """Returns the names of the topics that have dead letters of a subscription.  `shard_ids`: its shards."""
    asked = {"subscription_id": subscription_id, "source_shard_ids": list(shard_ids)}
    [rows] = await connection.run((_LIST_DEAD_LETTER_SHARDS, asked))
    topics = await read_dead_letter_topics(connection, [row.shard_id for row in rows])
    return sorted({row.topic for row in topics.values()})


@dataclass(slots=True)
class _Walk:
    connection: HotConnection
    asked: AskedDeadLetters
    found: list[DeadLetter] = field(default_factory=list)
    scanned: int = 0
    resolved: int = 0
    bytes_left: int = MAX_RESPONSE_BYTES
    _chunk: int = 0  # as many as were read last

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self.asked.page.size or self.scanned >= MAX_DEAD_LETTERS or self.bytes_left <= 0

    async def shard(self, shard_id: int, from_seq: int | None) -> DeadLetterPosition | None:
        """Reads the messages of a shard from a sequence on.  Returns where to continue in this shard, None at its
        end.
        """
        while from_seq is not None:
            if self.is_full:
                return DeadLetterPosition(shard_id, from_seq)
            found = await read_chosen(
                self.connection,
                self.asked.chosen,
                shard_id=shard_id,
                from_seq=from_seq,
                now=self.asked.now,
                max_scanned=self._next_chunk(),
            )
            rest = await self._take(shard_id, found)
            if rest is not None:
                return rest
            from_seq = found.next_seq
        return None

    def _next_chunk(self) -> int:
        """Returns how many dead letters to read: little more than a page takes, then twice as many each time.

        Few of them may match, and each read has a cost of its own.
        """
        wanted = self.asked.page.size - len(self.found) + _MORE
        self._chunk = min(_CHUNK, max(wanted, 2 * self._chunk))
        return self._chunk

    async def _take(self, shard_id: int, found: ChosenGroups) -> DeadLetterPosition | None:
        """Keeps messages as long as there is room.  Returns the position of the first one that was not kept, None
        if all were.
        """
        shown = {group.seq: _shown(group, found, self.asked.now) for group in found.groups if group.is_open}
        messages = await self._messages(list(shown.values()))
        for group in found.groups:
            dead_letter = shown.get(group.seq)
            message = None if dead_letter is None else messages.get((dead_letter.shard_id, dead_letter.seq))
            beyond = self.asked.bodies and message is not None and message.data is None
            if self.is_full or beyond:
                return DeadLetterPosition(shard_id, group.seq)
            self._count(group)
            if dead_letter is not None:
                self._add(dead_letter, dead_letter_of(dead_letter, message, shard_id), found)
        self.scanned += found.left_out
        return None

    def _count(self, group: Group) -> None:
        self.scanned += group.dead_letter_count
        if not group.is_open:
            self.resolved += group.dead_letter_count

    async def _messages(self, dead_letters: Sequence[Any]) -> dict[tuple[int, int], Any]:
        """Returns the messages that the dead-letter topic still has, by shard and sequence."""
        if not dead_letters:
            return {}
        asked: dict[str, Any] = {
            "shard_ids": [dead_letter.shard_id for dead_letter in dead_letters],
            "publish_times": [dead_letter.publish_time for dead_letter in dead_letters],
            "seqs": [dead_letter.seq for dead_letter in dead_letters],
            "max_bytes": MAX_RESPONSE_BYTES if self.asked.bodies else 0,
            "preview_bytes": self.asked.page.preview_bytes,
        }
        return {
            (row.shard_id, row.seq): row
            for row in await read_sharing(self.connection, _READ_DEAD_LETTER_MESSAGES, asked)
        }

    def _add(self, row: Any, dead_letter: DeadLetter, found: ChosenGroups) -> None:
        if not self.asked.page.takes(dead_letter):
            return
        topic = found.topics.get(dead_letter.dead_letter_shard)
        backlogs = found.backlogs.get(dead_letter.dead_letter_shard, ())
        holding = [backlog.name for backlog in backlogs if backlog.has(row, self.asked.now)]
        name = DELETED_TOPIC if topic is None else topic.topic
        self.found.append(replace(dead_letter, topic=name, subscriptions=sorted(holding)))
        data_size = dead_letter.data_size if self.asked.bodies else 0
        self.bytes_left -= preview_cost(data_size, self.asked.page.preview_bytes) + len(dead_letter.attributes_text)


def _shown(group: Group, found: ChosenGroups, now: datetime) -> Any:
    """Returns the dead letter that represents a message: the newest one that a subscription has, else the newest
    one.

    Only dead letters that match the filter count, if there are any.
    """

    def rank(dead_letter: Any) -> tuple[bool, datetime]:
        backlogs = found.backlogs.get(dead_letter.shard_id, ())
        return any(backlog.has(dead_letter, now) for backlog in backlogs), dead_letter.publish_time

    return max(
        (dead_letter for dead_letter in group.dead_letters if dead_letter.matches),
        key=rank,
        default=group.dead_letters[-1],
    )


def dead_letter_of(row: Any, message: Any, shard_id: int) -> DeadLetter:
    """Returns the dead letter of a message of a shard.

    `message`: the row of the message in the dead-letter topic (None: it is no longer there).
    """
    text = "{}" if message is None else message.attributes  # of one that is lost it is known that there was one
    attributes: Mapping[str, str] = _decode_attributes(text)
    return DeadLetter(
        shard_id=shard_id,
        seq=row.source_seq,
        source_publish_time=row.source_publish_time,
        dead_letter_shard=row.shard_id,
        dead_letter_seq=row.seq,
        publish_time=row.publish_time,
        delivery_attempts=row.delivery_attempts,
        reason=row.reason,
        ordering_key=None if message is None else message.ordering_key,
        attributes=attributes,
        attributes_text=text,
        data=None if message is None else message.data,
        data_size=0 if message is None else message.data_size,
    )
