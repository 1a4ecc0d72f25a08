"""What a subscription has given up, and who still holds it (G2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from broker.domain.dead_letter_list import MAX_LETTERS, DeadLetter, LetterList, LetterPage, LetterPosition
from broker.domain.delivery import MAX_RESPONSE_BYTES
from broker.domain.sequences import bounds_of, from_bits, from_multirange
from broker.store.driver import statements
from broker.store.driver.by_shard import read_sharing
from broker.store.driver.hot_connection import HotConnection

_LIST_DEAD_LETTERS = statements.hot("list_dead_letters")
_READ_LETTER_MESSAGES = statements.hot("read_letter_messages")
_READ_PILES = statements.hot("read_piles")
_READ_NEXT_SEQS = statements.hot("read_next_seqs")
_READ_PILED = statements.hot("read_piled")

_CHUNK = 500  # letters that are read at a time
_MAX_ROWS = 10_000  # of what a subscription was handed out in a shard; beyond, what is out counts as settled
_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedLetters:
    """Of which subscription; the paths are the filter's.  `bodies`: with their data."""

    subscription_id: int
    shard_ids: Sequence[int]
    filter_path: str | None
    body_path: str | None
    page: LetterPage
    now: datetime
    bodies: bool = True


@dataclass(slots=True)
class _Pile:
    """A subscription in a shard of a dead-letter topic: what it holds there."""

    topic: str
    name: str
    retained_since: datetime
    next_seq: int
    out: set[int] = field(default_factory=set)
    waiting: dict[str, Sequence[tuple[int, int]]] = field(default_factory=dict)  # by key

    def holds(self, letter: DeadLetter) -> bool:
        if letter.publish_time < self.retained_since:
            return False
        if letter.letter_seq >= self.next_seq or letter.letter_seq in self.out:
            return True
        ranges = self.waiting.get(letter.ordering_key or "", ())
        return any(first <= letter.letter_seq < end for first, end in ranges)


async def list_dead_letters(connection: HotConnection, asked: AskedLetters) -> LetterList:
    """A page of those that somebody holds; it ends when it is full, when MAX_LETTERS were looked at, or when there
    are no more.  Nothing is locked.
    """
    walk = _Walk(connection, asked)
    start = asked.page.start
    for shard_id in sorted(id_ for id_ in asked.shard_ids if start is None or id_ >= start.shard_id):
        at = start if start is not None and start.shard_id == shard_id else LetterPosition(shard_id)
        rest = await walk.shard(at)
        if rest is not None:
            return LetterList(walk.found, walk.scanned, walk.gone, rest)
    return LetterList(walk.found, walk.scanned, walk.gone, None)


@dataclass(slots=True)
class _Walk:
    connection: HotConnection
    asked: AskedLetters
    found: list[DeadLetter] = field(default_factory=list)
    piles: dict[int, list[_Pile]] = field(default_factory=dict)  # by shard
    scanned: int = 0
    gone: int = 0
    room: int = MAX_RESPONSE_BYTES

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self.asked.page.size or self.scanned >= MAX_LETTERS or self.room <= 0

    async def shard(self, at: LetterPosition) -> LetterPosition | None:
        """The letters of a shard from there on; where to go on, None: there is no more."""
        while not self.is_full:
            rows = await self._rows(at)
            messages = await self._messages(rows)
            await self._read_piles(sorted({row.letter_shard for row in rows} - self.piles.keys()))
            for row in rows:
                message = messages.get((row.letter_shard, row.letter_seq))
                beyond = message is not None and message.matches and message.data is None
                if self.is_full or (self.asked.bodies and beyond):
                    return at
                at = LetterPosition(at.shard_id, row.seq, row.letter_shard, row.letter_seq)
                self.scanned += 1
                self._take(row, message, at.shard_id)
            if len(rows) < _CHUNK:
                return None
        return at

    async def _rows(self, at: LetterPosition) -> Sequence[Any]:
        asked = {
            "shard_id": at.shard_id,
            "subscription_id": self.asked.subscription_id,
            "after_seq": at.seq,
            "after_letter_shard": at.letter_shard,
            "after_letter_seq": at.letter_seq,
            "max_letters": _CHUNK,
        }
        [rows] = await self.connection.run((_LIST_DEAD_LETTERS, asked))
        return rows

    async def _messages(self, letters: Sequence[Any]) -> dict[tuple[int, int], Any]:
        """As they lie in the dead-letter topic, by their places there; of those that do still."""
        if not letters:
            return {}
        asked: dict[str, Any] = {
            "shard_ids": [letter.letter_shard for letter in letters],
            "publish_times": [letter.publish_time for letter in letters],
            "seqs": [letter.letter_seq for letter in letters],
            "filter_path": self.asked.filter_path,
            "body_path": self.asked.body_path,
            "max_bytes": MAX_RESPONSE_BYTES if self.asked.bodies else 0,
        }
        return {
            (row.shard_id, row.seq): row
            for row in await read_sharing(self.connection, _READ_LETTER_MESSAGES, asked)
        }

    def _take(self, row: Any, message: Any, shard_id: int) -> None:
        if message is None:  # it has gone with its partition
            self.gone += 1
            return
        letter = _letter(row, message, shard_id)
        holding = [pile for pile in self.piles.get(row.letter_shard, ()) if pile.holds(letter)]
        if not holding:
            self.gone += 1
        elif message.matches and self.asked.page.takes(letter):
            names = [pile.name for pile in holding]
            self.found.append(replace(letter, topic=holding[0].topic, subscriptions=names))
            self.room -= len(message.data or b"") + len(message.attributes)

    async def _read_piles(self, shard_ids: Sequence[int]) -> None:
        if not shard_ids:
            return
        # Whose they are, and behind it where each stands: who is made meanwhile is not among them, and who is
        # detached has none.
        asked = {"shard_ids": shard_ids}
        rows, cursors = await self.connection.run((_READ_PILES, asked), (_READ_NEXT_SEQS, asked))
        stands = {(row.shard_id, row.subscription_id): row.next_seq for row in cursors}
        self.piles |= {shard_id: [] for shard_id in shard_ids}
        for row in rows:
            next_seq = stands.get((row.shard_id, row.subscription_id))
            if next_seq is None:
                continue
            pile = _Pile(row.topic, row.subscription, self.asked.now - row.retention, next_seq)
            where = {"shard_id": row.shard_id, "subscription_id": row.subscription_id, "max_rows": _MAX_ROWS}
            [held] = await self.connection.run((_READ_PILED, where))
            for attempt in held:
                _add(pile, attempt)
            self.piles[row.shard_id].append(pile)


def _add(pile: _Pile, attempt: Any) -> None:
    seqs = from_multirange(attempt.seqs)
    pile.out.update(seqs[ordinal] for ordinal in from_bits(attempt.open))
    if attempt.ordering_key is not None:
        pile.waiting[attempt.ordering_key] = bounds_of(attempt.waiting)


def _letter(row: Any, message: Any, shard_id: int) -> DeadLetter:
    attributes: Mapping[str, str] = _decode_attributes(message.attributes)
    return DeadLetter(
        shard_id=shard_id,
        seq=row.seq,
        source_publish_time=row.source_publish_time,
        letter_shard=row.letter_shard,
        letter_seq=row.letter_seq,
        publish_time=row.publish_time,
        delivery_attempts=row.delivery_attempts,
        reason=row.reason,
        ordering_key=message.ordering_key,
        attributes=attributes,
        attributes_text=message.attributes,
        data=message.data,
    )
