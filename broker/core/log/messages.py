"""The log: appends messages, and reads batches of them.  Only this module writes `message_batches`.

A row is a batch: up to MAX_BATCH consecutive messages, published at one time with the same ordering key, or without
one.  A message in a batch costs PostgreSQL a third, or less, of what a row of its own would cost
(docs/decisions/0011).
"""

import random
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, groupby, islice, repeat
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import msgspec
from psycopg.errors import CheckViolation

from broker.core.log.known_heads import KnownHeads
from broker.core.log.partitions import PartitionMissing
from broker.db.driver import statements
from broker.db.driver.binary import OIDS, array
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.publish_limits import refuse_nul

_TAKE_SEQUENCES = statements.hot("take_sequences")
_APPEND_MESSAGES = statements.hot("append_messages")
_TAKE_ID_SEQS = statements.hot("take_id_seqs")
_INSERT_SCHEDULED_MESSAGES = statements.hot("insert_scheduled_messages")

MAX_BATCH = 100  # messages
# Two batches and their row headers fit a page of 8 KB; larger ones would waste the rest of it, or leave their row.
MAX_BATCH_BYTES = 3_900
_LARGE_BYTES = 1 << 20  # of a request; joining smaller ones twice costs less than keeping their parts
_ELEMENT_OVERHEAD = 8  # bytes that an array adds to a body: its length, and up to 3 to the next multiple of 4

_LENGTH = struct.Struct("!i").pack
_NULL = _LENGTH(-1)
_JSONB_VERSION = b"\x01"
_MICROSECOND = timedelta(microseconds=1)
_FROZEN = "shards_frozen_check"  # the name in db/schema/tables.py

_encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ScheduledPart:
    """Messages of a publish request that are to come later, packed as the others are.

    `indexes`: which of the request's they are; `ttls`: for how many microseconds each is delivered (empty: all for
    ever).
    """

    indexes: Sequence[int]
    due_ats: Sequence[datetime]
    sizes: Sequence[int]
    ordering_key: str | None
    attributes: bytes
    data: Sequence[bytes]
    ttls: Sequence[int | None] = ()

    @property
    def count(self) -> int:
        return len(self.indexes)


class AppendIdentified(Protocol):
    """Appends the requests of a flush if any of them is identified."""

    async def __call__(
        self, connection: HotConnection, *, shard_id: int, requests: "Sequence[EncodedMessages]", now: datetime
    ) -> "Sequence[Appended | Stored] | None":
        """Return the outcome of each request; None: the shard is closed or frozen.  Raises PartitionMissing."""


@dataclass(frozen=True, slots=True)
class Identified:
    """Identities of a request's messages, by which `append` recognizes repeats within a `window`.

    `digests`: the identity of each message; None: the message is never a repeat.
    """

    digests: Sequence[bytes | None]
    window: timedelta
    append: AppendIdentified


@dataclass(slots=True)
class EncodedMessages:
    """Messages of one publish request, as elements of PostgreSQL's binary arrays, ready to be joined.

    `data` is in pieces if it is large: a fresh block of 7 MB takes the event loop 5 ms, so that is joined once, for
    the statement. `attributes` is empty if no message has any. `parts`: the batches that it would be cut into, by
    (count, size); `sizes`: of the messages, data and attributes. `shared`: of each part, what its messages have
    besides their own attributes, as JSON; empty: nothing. `ttls`: for how many microseconds the messages of each
    part are delivered (empty: all for ever). `has_gaps`: some messages have a sequence and are not stored; their
    parts have no size (None), and they are in no `sizes`. `scheduled`: messages beside them, which have no sequence
    yet and are not in `count`; `size` and `sizes` have them, too. `identified`: some of them may be repeats.
    Then `some` packs the messages at some indexes alone.
    """

    count: int
    size: int
    ordering_key: str | None
    attributes: bytes
    data: Sequence[bytes]
    parts: Sequence[tuple[int, int | None]]
    sizes: Sequence[int] = ()
    shared: Sequence[str] = ()
    ttls: Sequence[int | None] = ()
    has_gaps: bool = False
    scheduled: ScheduledPart | None = None
    identified: Identified | None = None
    some: "Callable[[Sequence[int]], EncodedMessages] | None" = None


class Appended(NamedTuple):
    """The position of appended messages: sequences first_seq, first_seq + 1, …, all with one publish time.

    `first_id_seq`: the first number of the scheduled messages, if there are any.
    """

    first_seq: int
    publish_time: datetime
    first_id_seq: int = 0


class Stored(NamedTuple):
    """The outcome of a request some of whose messages may have been repeats.

    `id_seqs`: the number that the id of each message is made of; `sizes`: of the messages that were stored;
    `repeated`: the indexes of those that were not.
    """

    id_seqs: Sequence[int]
    sizes: Sequence[int]
    repeated: Sequence[int] = ()

    @property
    def repeats(self) -> int:
        return len(self.repeated)


def encode_messages(
    messages: Sequence[NewMessage], shared: Sequence[str] = (), ttls: Sequence[timedelta | None] | None = None
) -> EncodedMessages:
    """Pack messages, all with the same ordering key, for `append_messages`.

    `shared`: of each message, attributes that it has besides its own, as a JSON object that is not empty; stored
    once for a batch, in which all messages have the same.  `ttls`: for how long each is delivered, likewise; None:
    all for ever.

    Raises InvalidArgument for U+0000 in an attribute or ordering key, which PostgreSQL's text cannot hold.
    """
    ordering_key = messages[0].ordering_key or None
    if ordering_key is not None and "\0" in ordering_key:
        raise InvalidArgument("ordering_key has the character U+0000, which cannot be stored.")
    bodies = [message.data for message in messages]
    lengths = list(map(len, bodies))
    sizes = lengths
    attributes = b""
    each = [message.attributes for message in messages]
    if any(each):
        texts = [_encode_json(of_message) if of_message else b"" for of_message in each]
        attributes = b"".join([_LENGTH(len(text) + 1) + _JSONB_VERSION + text if text else _NULL for text in texts])
        if b"\\u0000" in attributes:
            for index, message in enumerate(messages):
                refuse_nul(f"messages[{index}].attributes", message.attributes)
        sizes = [_size(m, length, text) for m, length, text in zip(messages, lengths, texts, strict=True)]
    data = list(chain.from_iterable(zip(map(_LENGTH, lengths), bodies, strict=True)))
    size = sum(sizes)
    packed = len(messages), size, ordering_key, attributes, data if size > _LARGE_BYTES else [b"".join(data)]
    if not shared and ttls is None:
        return EncodedMessages(*packed, _parts(sizes), sizes)
    return _in_runs(EncodedMessages(*packed, (), sizes), shared, ttls)


def _in_runs(
    whole: EncodedMessages, shared: Sequence[str], ttls: Sequence[timedelta | None] | None
) -> EncodedMessages:
    """Cut where what the messages share, or for how long they are delivered, is another than before."""
    texts = shared or repeat("")
    lives = repeat(None) if ttls is None else in_microseconds(ttls)
    runs = groupby(zip(zip(texts, lives, strict=False), whole.sizes, strict=False), itemgetter(0))
    parts = [(alike, part) for alike, run in runs for part in _parts([size for _, size in run])]
    return replace(
        whole,
        parts=[part for _, part in parts],
        shared=[text for (text, _), _ in parts] if shared else (),
        ttls=() if ttls is None else [ttl for (_, ttl), _ in parts],
    )


def in_microseconds(ttls: Iterable[timedelta | None]) -> list[int | None]:
    return [None if ttl is None else ttl // _MICROSECOND for ttl in ttls]


def encode_with_gaps(
    messages: Sequence[NewMessage | None],
    shared: Sequence[str] = (),
    ttls: Sequence[timedelta | None] | None = None,
) -> EncodedMessages:
    """The same where some messages are not stored (None) and have a sequence all the same, that names nothing.

    `shared` is of the others, `ttls` of all.
    """
    runs: list[EncodedMessages] = []
    texts = iter(shared)
    lives = None if ttls is None else iter(ttls)
    for is_gap, run in groupby(messages, lambda message: message is None):
        of_run = list(run)
        of_lives = None if lives is None else list(islice(lives, len(of_run)))
        stored = [message for message in of_run if message is not None]
        if is_gap:
            count = len(of_run)
            runs.append(EncodedMessages(count, 0, None, b"", [_LENGTH(0)] * count, [(count, None)]))
        else:
            runs.append(encode_messages(stored, list(islice(texts, len(stored))), of_lives))
    has_attributes = any(run.attributes for run in runs)
    return EncodedMessages(
        len(messages),
        sum(run.size for run in runs),
        next((run.ordering_key for run in runs if run.sizes), None),
        b"".join(run.attributes or _NULL * run.count for run in runs) if has_attributes else b"",
        list(chain.from_iterable(run.data for run in runs)),
        list(chain.from_iterable(run.parts for run in runs)),
        list(chain.from_iterable(run.sizes for run in runs)),
        list(chain.from_iterable(run.shared for run in runs)),
        list(chain.from_iterable(run.ttls for run in runs)),
        has_gaps=True,
    )


def _size(message: NewMessage, length: int, attributes: bytes) -> int:
    """Returns the size of a message, with its attributes as PostgreSQL prints them.

    It prints a space after each comma and colon.
    """
    return length + (len(attributes) + 2 * len(message.attributes) - 1 if attributes else 0)


def _parts(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Batches of equally many messages, as many as fit for certain."""
    most = MAX_BATCH_BYTES // (max(sizes) + _ELEMENT_OVERHEAD)
    length = max(1, min(MAX_BATCH, most))
    parts = [sizes[start : start + length] for start in range(0, len(sizes), length)]
    return [(len(part), sum(part)) for part in parts]


@dataclass(slots=True)
class _Batches:
    """The batches of a flush.  A request that fits is added to the last one."""

    lasts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    ordering_keys: list[str | None] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)
    ttls: list[int | None] = field(default_factory=list)
    count: int = 0

    def add(self, request: EncodedMessages) -> None:
        if self._fits(request):
            self.count += request.count
            self.lasts[-1] = self.count
            self.counts[-1] += request.count
            self.sizes[-1] += request.size
            return
        before = len(self.lasts)
        for count, size in request.parts:
            self.count += count
            if size is None:
                continue
            self.lasts.append(self.count)
            self.counts.append(count)
            self.sizes.append(size)
            self.ordering_keys.append(request.ordering_key)
        added = len(self.lasts) - before
        self.shared += request.shared or [""] * added
        self.ttls += request.ttls or [None] * added

    def _fits(self, request: EncodedMessages) -> bool:
        if not self.counts or request.ordering_key != self.ordering_keys[-1]:
            return False
        if request.has_gaps or self.lasts[-1] != self.count:
            return False
        if request.shared != ([self.shared[-1]] if self.shared[-1] else ()):
            return False
        if request.ttls != ([self.ttls[-1]] if self.ttls[-1] is not None else ()):
            return False
        count = self.counts[-1] + request.count
        return count <= MAX_BATCH and self.sizes[-1] + request.size + count * _ELEMENT_OVERHEAD <= MAX_BATCH_BYTES


def append_statements(
    shard_id: int, requests: Sequence[EncodedMessages], now: datetime, heads: KnownHeads | None = None
) -> tuple[Bound, Bound]:
    """Returns the statements that append all requests' messages, in order.

    The first statement returns no row if the shard is closed.
    """
    batches = _Batches()
    for request in requests:
        batches.add(request)
    where = {"shard_id": shard_id, "count": batches.count}
    rows = {
        "lasts": batches.lasts,
        "counts": batches.counts,
        "sizes": batches.sizes,
        "ordering_keys": batches.ordering_keys if any(batches.ordering_keys) else [],
        "attributes": _attributes(requests, batches.count),
        "data": _data(requests, batches.count),
        "shared_attributes": _shared(batches.shared),
        "ttls": batches.ttls if batches.ttls.count(None) < len(batches.ttls) else [],
    }
    return (_TAKE_SEQUENCES, {**where, "now": now, "heads": heads}), (_APPEND_MESSAGES, {**where, **rows})


def _data(parts: Sequence[EncodedMessages] | Sequence[ScheduledPart], count: int) -> bytes:
    return array(OIDS["bytea"], chain.from_iterable([part.data for part in parts]), count)


def _attributes(requests: Sequence[EncodedMessages], count: int) -> bytes | None:
    if not any(request.attributes for request in requests):
        return None
    elements = [request.attributes or _NULL * request.count for request in requests]
    return array(OIDS["jsonb"], elements, count)


def _shared(texts: Sequence[str]) -> bytes | None:
    if not any(texts):
        return None
    return array(OIDS["jsonb"], [_jsonb(text.encode()) if text else _NULL for text in texts], len(texts))


def _jsonb(text: bytes) -> bytes:
    return _LENGTH(len(text) + 1) + _JSONB_VERSION + text


async def append_messages(
    connection: HotConnection,
    *,
    shard_id: int,
    requests: Sequence[EncodedMessages],
    now: datetime,
    heads: KnownHeads | None = None,
) -> Appended | None:
    """Append all requests' messages, in order, to a shard in one commit.

    `heads`: what is known of them (append_messages_citus.py).

    Returns where the first message came to stand, or None if the shard is closed (its topic was deleted) or frozen.
    Raises PartitionMissing; an OperationalError of psycopg means that the outcome is unknown.
    """
    later = [request.scheduled for request in requests if request.scheduled is not None]
    to_come = schedule_statements(shard_id, later, now) if later else ()
    take, append = append_statements(shard_id, requests, now, heads)
    given: Sequence[list[Any]] = ()
    try:
        taken, _, *given = await connection.run(take, append, *to_come)
    except CheckViolation as error:
        if is_frozen(error):
            return None
        raise PartitionMissing from error
    if not taken or (later and not given[0]):
        return None
    [(head, publish_time)] = taken
    first_seq = head - sum([request.count for request in requests]) + 1
    if not later:
        return Appended(first_seq, publish_time)
    [(last_id_seq,)] = given[0]
    return Appended(first_seq, publish_time, last_id_seq - sum(part.count for part in later) + 1)


def append_of(requests: Sequence[EncodedMessages]) -> AppendIdentified | None:
    """Returns the function that appends these requests if any of them is identified; None:

    `append_messages` does.
    """
    for request in requests:
        if request.identified is not None:
            return request.identified.append
    return None


def appended_each(whole: Appended, requests: Sequence[EncodedMessages]) -> list[Appended]:
    """Divides the position of all messages that were appended together among their requests."""
    if len(requests) == 1:
        return [whole]
    first_seq, publish_time, first_id_seq = whole
    each = []
    for request in requests:
        each.append(Appended(first_seq, publish_time, first_id_seq))
        first_seq += request.count
        if request.scheduled is not None:
            first_id_seq += request.scheduled.count
    return each


def schedule_statements(shard_id: int, parts: Sequence[ScheduledPart], now: datetime) -> tuple[Bound, ...]:
    """Returns the statements that store scheduled messages.

    The first statement returns no row if the shard is closed or frozen.
    """
    flush = random.getrandbits(63)
    take = {"shard_id": shard_id, "count": sum(part.count for part in parts), "flush": flush}
    return (_TAKE_ID_SEQS, take), schedule_statement(shard_id, parts, now, flush)


def schedule_statement(shard_id: int, parts: Sequence[ScheduledPart], now: datetime, flush: int) -> Bound:
    """Returns the statement that stores scheduled messages, if the `flush` has numbers for them."""
    count = sum(part.count for part in parts)
    attributes = b"".join(part.attributes or _NULL * part.count for part in parts)
    rows = {
        "accepted_at": now,
        "due_ats": [due_at for part in parts for due_at in part.due_ats],
        "sizes": [size for part in parts for size in part.sizes],
        "ordering_keys": [part.ordering_key for part in parts for _ in part.indexes],
        "attributes": array(OIDS["jsonb"], [attributes], count),
        "data": _data(parts, count),
        "ttls": [ttl for part in parts for ttl in part.ttls or repeat(None, part.count)],
    }
    return _INSERT_SCHEDULED_MESSAGES, {"shard_id": shard_id, "count": count, "flush": flush, **rows}


def is_frozen(error: CheckViolation) -> bool:
    """Whether it is for a freeze that nothing can be appended.  A node's error comes with its message alone."""
    return _FROZEN in (error.diag.constraint_name or error.diag.message_primary or "")
