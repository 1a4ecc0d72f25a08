"""Lists the unsettled messages of a subscription with their states (F3).

The list goes from shard to shard.  In each, it begins with the rows of delivered messages, together with the
messages that wait for the ordering keys of these rows, and continues with the log from the cursor on.  It takes no
locks, so a message whose state changes meanwhile may be listed twice or not at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from broker.core.backlog.delivery_rows import delivery_row
from broker.core.backlog.delivery_state import TAKEN, DeliveryRow, DeliveryState
from broker.core.log.message_ids import id_seqs_at
from broker.db.driver import statements
from broker.db.driver.hot_connection import HotConnection
from broker.features.inspect.backlog_page import (
    MAX_SCANNED,
    BacklogList,
    BacklogMessage,
    BacklogPage,
    BacklogPosition,
)
from broker.model.delivery import MAX_RESPONSE_BYTES
from broker.model.message_preview import READ_SHARE, preview_cost
from broker.model.sequences import to_multirange

_LIST_ATTEMPTS = statements.hot("list_attempts")
_LIST_HELD = statements.hot("list_held")
_LIST_WAITING = statements.hot("list_waiting")
_READ_BACKLOG_MESSAGES = statements.hot("read_backlog_messages")

_ROWS = 100  # rows that are read at a time
_CHUNK = 200  # messages that are read with their data at a time
_EVER = datetime.min.replace(tzinfo=UTC)
_WITH_TIME = frozenset({DeliveryState.OUTSTANDING, DeliveryState.RETRYING})
_IN_LOG = frozenset({DeliveryState.WAITING, DeliveryState.BLOCKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Parameters of a list.

    `filter_path` and `body_path` are those of the list's filter (None: all messages match).  `log_path` and
    `log_body_path` combine it with the subscription's own filter, for messages of the log (None: all match).
    """

    subscription_id: int
    shard_ids: Sequence[int]
    ordered: bool
    retained_since: datetime
    filter_path: str | None
    body_path: str | None = None
    log_path: str | None
    log_body_path: str | None = None
    page: BacklogPage
    now: datetime


async def list_messages(connection: HotConnection, asked: Asked) -> BacklogList:
    """Returns a page.  A page ends when it is full, after MAX_SCANNED messages, or at the end of the backlog."""
    walk = _Walk(connection, asked)
    start = asked.page.start
    shards = sorted(id_ for id_ in asked.shard_ids if start is None or id_ >= start.shard_id)
    for shard_id in shards:
        position = start if start is not None and start.shard_id == shard_id else BacklogPosition(shard_id)
        rest = position if position.in_log else await walk.rows(position)
        if rest is None:
            rest = BacklogPosition(shard_id, in_log=True)
        if rest.in_log and asked.page.states & _IN_LOG:
            rest = await walk.log(rest)
        elif rest.in_log:
            rest = None
        if rest is not None:
            return BacklogList(await walk.named(), walk.scanned, rest)
    return BacklogList(await walk.named(), walk.scanned, None)


def with_ids(found: Sequence[BacklogMessage], names: Mapping[tuple[int, int], int]) -> list[BacklogMessage]:
    """Replaces the sequences in `held_by` by the numbers that message ids contain."""
    return [
        each if each.held_by is None else replace(each, held_by=names[each.shard_id, each.held_by])
        for each in found
    ]


@dataclass(slots=True)
class _Walk:
    connection: HotConnection
    asked: Asked
    found: list[BacklogMessage] = field(default_factory=list)
    scanned: int = 0
    bytes_left: int = MAX_RESPONSE_BYTES

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self.asked.page.size or self.scanned >= MAX_SCANNED or self.bytes_left <= 0

    async def named(self) -> list[BacklogMessage]:
        """Returns the messages found so far, with `held_by` as in message ids."""
        held = {(each.shard_id, each.held_by) for each in self.found if each.held_by is not None}
        return with_ids(self.found, await id_seqs_at(self.connection, held))

    async def rows(self, position: BacklogPosition) -> BacklogPosition | None:
        """Reads the rows of delivered messages, from a position on.  Returns where to continue in this shard, None
        at its end.
        """
        while True:
            where = {"shard_id": position.shard_id, "subscription_id": self.asked.subscription_id}
            limits = {"attempt_id": position.attempt_id, "part": position.part, "max_rows": _ROWS}
            [rows] = await self.connection.run((_LIST_ATTEMPTS, where | limits))
            for row in rows:
                if (row.attempt_id, row.part) != (position.attempt_id, position.part):
                    position = BacklogPosition(position.shard_id, False, row.attempt_id, row.part)
                rest = await self._row(row, position)
                if rest is not None:
                    return rest
            if len(rows) < _ROWS:
                return None
            position = replace(position, part=position.part + 1, seq=-1)

    async def _row(self, row: Any, position: BacklogPosition) -> BacklogPosition | None:
        """Reads the messages of one row after the position.  Returns where to continue, None for the next row."""
        if self.is_full:
            return position
        of_row = [m for m in messages_of_row(row, position.shard_id, self.asked.now) if m.seq > position.seq]
        wanted = [m for m in of_row if m.state in self.asked.page.states]
        if position.seq < 0:
            self.scanned += max(len(of_row) - len(wanted), 1)
        while not self.is_full:
            chunk = [message for message in wanted if message.seq > position.seq][:_CHUNK]
            held = await self._held(row, position)
            # Waiting messages may be older than those in the row that came back: both are merged into one order.
            ends = [some[-1].seq for some in (chunk, held) if len(some) == _CHUNK]
            passed = {message.seq for message in held}
            both = sorted((*chunk, *held), key=attrgetter("seq"))
            both = [message for message in both if not ends or message.seq <= min(ends)]
            for are_passed, some in groupby(both, key=lambda message: message.seq in passed):
                run = list(some)
                position = await self._take(run, row, position, are_passed=are_passed)
                if position.seq < run[-1].seq:
                    return position
            if not (ends or self.is_full):
                return None
        return position

    async def _held(self, row: Any, position: BacklogPosition) -> list[BacklogMessage]:
        """Reads the next messages of the log that wait for the ordering key of a row."""
        if not row.waits or DeliveryState.BLOCKED not in self.asked.page.states:
            return []
        asked = {
            "shard_id": position.shard_id,
            "subscription_id": self.asked.subscription_id,
            "attempt_id": row.attempt_id,
            "part": row.part,
            "publish_time": max(position.publish_time, row.first_publish_time),
            "seq": position.seq,
            "retained_since": self._since(row),
            "max_messages": min(_CHUNK, MAX_SCANNED - self.scanned),
        }
        [rows] = await self.connection.run((_LIST_HELD, asked))
        holder = delivery_row(row).blocker
        state = DeliveryState.WAITING if holder is None else DeliveryState.BLOCKED
        return [
            BacklogMessage(shard_id=position.shard_id, seq=seq, publish_time=time, state=state, held_by=holder)
            for seq, time in rows
        ]

    def _is_past(self, publish_time: datetime, expires_at: datetime | None) -> bool:
        is_expired = expires_at is not None and expires_at <= self.asked.now
        return is_expired or publish_time < self.asked.retained_since

    def _since(self, row: Any) -> datetime:
        """Returns the publish time from which on messages of a row are delivered.  Redriven ones are delivered at
        any age.
        """
        return _EVER if row.redriven else self.asked.retained_since

    async def _take(
        self, wanted: Sequence[BacklogMessage], row: Any, position: BacklogPosition, *, are_passed: bool = False
    ) -> BacklogPosition:
        """Reads messages and keeps those that match, as long as there is room.  Returns the position after the last
        one.

        `are_passed`: the messages wait in the log for their ordering key, so the subscription's filter has yet to
        be applied.
        """
        asked = {
            "shard_id": position.shard_id,
            "first_publish_time": row.first_publish_time,
            "last_publish_time": max([row.last_publish_time, *(m.publish_time for m in wanted)]),
            "seqs": to_multirange([m.seq for m in wanted]),
            "filter_path": self.asked.log_path if are_passed else self.asked.filter_path,
            "body_path": self.asked.log_body_path if are_passed else self.asked.body_path,
            **self._shown,
        }
        [rows] = await self.connection.run((_READ_BACKLOG_MESSAGES, asked))
        bodies = {body.seq: body for body in rows}
        for message in wanted:
            body = bodies.get(message.seq)
            if self.is_full or (body is not None and not body.fits):
                return position
            self.scanned += 1
            time = message.publish_time if body is None else body.publish_time
            position = replace(position, seq=message.seq, publish_time=max(position.publish_time, time))
            if body is not None and (
                message.state in TAKEN or row.redriven or not self._is_past(body.publish_time, body.expires_at)
            ):
                self._match(replace(message, publish_time=body.publish_time), body)
        return position

    @property
    def _shown(self) -> dict[str, Any]:
        """Returns the parameters that say which part of the data a statement searches, and which part
        it returns.
        """
        page = self.asked.page
        return {
            "contains": page.contains.encode(),
            "preview_bytes": page.preview_bytes,
            "max_bytes": MAX_RESPONSE_BYTES,
        }

    async def log(self, position: BacklogPosition) -> BacklogPosition | None:
        """Reads messages that were never delivered, from a position of the log on.  Returns where to continue in
        this shard, None at its end.
        """
        while not self.is_full:
            chunk = min(_CHUNK, MAX_SCANNED - self.scanned)
            asked = {
                "shard_id": position.shard_id,
                "subscription_id": self.asked.subscription_id,
                "publish_time": position.publish_time,
                "seq": position.seq,
                "retained_since": self.asked.retained_since,
                "filter_path": self.asked.log_path,
                "body_path": self.asked.log_body_path,
                "ordered": self.asked.ordered,
                "now": self.asked.now,
                "max_scanned": chunk,
                **self._shown,
            }
            [rows] = await self.connection.run((_LIST_WAITING, asked))
            before = self.scanned
            for row in rows:
                if self.is_full or (row.matches and not row.fits):
                    break
                self.scanned = before + row.scanned
                position = replace(position, seq=row.seq, publish_time=row.publish_time)
                if row.matches:
                    self._match(_waiting(row, position.shard_id), row)
            else:
                if not rows or rows[-1].scanned < chunk:
                    return None
        return position

    def _match(self, message: BacklogMessage, body: Any) -> None:
        """Keeps a message if its state and data match.  `body`: the row of a statement that has read
        the message.
        """
        page = self.asked.page
        if page.contains:
            self.bytes_left -= body.data_size // READ_SHARE
        if message.state in page.states and body.has_text:
            self.found.append(_with_body(message, body))
            self.bytes_left -= preview_cost(body.data_size, page.preview_bytes) + len(body.attributes)


def messages_of_row(row: Any, shard_id: int, now: datetime) -> Iterator[BacklogMessage]:
    """Yields the unsettled messages of a row, in order."""
    parsed = delivery_row(row)
    for ordinal in parsed.unsettled:
        yield backlog_message(row, parsed, ordinal, shard_id, now)


def backlog_message(row: Any, parsed: DeliveryRow, ordinal: int, shard_id: int, now: datetime) -> BacklogMessage:
    """Returns an unsettled message of a row."""
    state = parsed.state(ordinal, now)
    is_blocked = state is DeliveryState.BLOCKED
    return BacklogMessage(
        shard_id=shard_id,
        seq=parsed.seqs[ordinal],
        ordering_key=parsed.ordering_key,
        state=state,
        attempt_number=parsed.attempts(ordinal),
        delivered_at=None if is_blocked else row.delivered_at,
        at=parsed.due_at if state in _WITH_TIME else None,
        held_by=parsed.blocker if is_blocked else None,
    )


def _with_body(message: BacklogMessage, body: Any) -> BacklogMessage:
    return replace(
        message,
        ordering_key=body.ordering_key,
        attributes=body.attributes,
        data=body.data,
        data_size=body.data_size,
        id_seq=body.id_seq,
    )


def _waiting(row: Any, shard_id: int) -> BacklogMessage:
    return BacklogMessage(
        shard_id=shard_id,
        seq=row.seq,
        publish_time=row.publish_time,
        state=DeliveryState.WAITING if row.held_by is None else DeliveryState.BLOCKED,
        held_by=row.held_by,
    )
