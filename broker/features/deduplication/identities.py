"""Flushes messages some of which may be repeats: a message that was published before is not stored again (J5).

The head of the shard is locked first, so that concurrent publishes of the same message are ordered.  A flush is one
transaction and one round trip.  If any of its messages is a repeat, it changes nothing and returns the repeats, and
the other messages are sent again.  No lock is held while this process computes.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from psycopg.errors import CheckViolation

from broker.core.log.message_ids import id_seqs_from, ranks_of
from broker.core.log.messages import (
    Appended,
    EncodedMessages,
    ScheduledPart,
    Stored,
    append_statements,
    is_frozen,
    schedule_statement,
)
from broker.core.log.partitions import (
    IDENTITIES,
    PartitionMissing,
    drop_detached_leftovers,
    drop_partition,
    list_partitions,
)
from broker.db.driver import statements
from broker.db.driver.binary import OIDS, array
from broker.db.driver.database import Connection
from broker.db.driver.hot_connection import Bound, HotConnection

_LOCK_HEAD = statements.hot("lock_head")
_TAKE_NEW_SEQUENCES = statements.hot("take_new_sequences")
_FIND_REPEATS = statements.hot("find_repeats")
_APPEND_NEW_MESSAGES = statements.hot("append_new_messages")
_INSERT_IDENTITIES = statements.hot("insert_identities")

# No flush can be on its way that asks so long after its time: its statements would have timed out.
_LONGEST_WINDOW = b"SELECT max((settings #>> '{extensions,deduplication,window}')::interval) FROM topics"
_STILL_ASKED = timedelta(minutes=5)
_LENGTH = (16).to_bytes(4)  # of a digest, before it in an array


@dataclass(slots=True)
class _Request:
    """`kept`: the indexes of its messages that are no repeats, as far as is known; `batch`: those, packed."""

    whole: EncodedMessages
    kept: list[int]
    batch: EncodedMessages
    first_seq: int = 0  # of its own, once it is stored
    first_id_seq: int = 0

    @property
    def digests(self) -> Sequence[bytes | None]:
        return () if self.whole.identified is None else self.whole.identified.digests

    @property
    def repeats(self) -> int:
        """The number of messages that are not stored, as far as is known."""
        return len(self.digests) - len(self.kept) if self.digests else 0

    def keep(self, kept: list[int]) -> None:
        assert self.whole.some is not None
        self.kept = kept
        self.batch = self.whole.some(kept) if kept else _NOTHING


_NOTHING = EncodedMessages(0, 0, None, b"", (), [])


class _Flush:
    """The requests of a flush, until each message of them is stored or known."""

    def __init__(self, requests: Sequence[EncodedMessages]) -> None:
        self._requests = [_Request(whole, list(range(_count(whole))), whole) for whole in requests]
        self._known: dict[bytes, int] = {}  # what the ids of these are made of, of what is stored
        # A window that was changed meanwhile: the shorter one, as if all requests had come after that.
        self.window = min(whole.identified.window for whole in requests if whole.identified is not None)
        self._drop_repeats_within()

    def _drop_repeats_within(self) -> None:
        seen: set[bytes] = set()
        for request in self._requests:
            kept = []
            for index, digest in enumerate(request.digests):
                if digest is None or digest not in seen:
                    kept.append(index)
                if digest is not None:
                    seen.add(digest)
            if len(kept) < len(request.digests):
                request.keep(kept)

    @property
    def batches(self) -> list[EncodedMessages]:
        return [request.batch for request in self._requests if request.kept]

    def identities(self) -> tuple[list[bytes], list[int]]:
        """Digests of what is kept, and their ranks: 1, 2, … of the sequences, -1, -2, … of what comes later."""
        digests: list[bytes] = []
        ranks: list[int] = []
        count = later = 0
        for request in self._requests:
            own = zip(request.kept, ranks_of(request.batch), strict=True) if request.digests else ()
            for index, rank in own:
                if (digest := request.digests[index]) is not None:
                    digests.append(digest)
                    ranks.append(rank + count if rank > 0 else rank - later)
            count += request.batch.count
            later += _later(request.batch)
        return digests, ranks

    def found(self, repeats: dict[bytes, int]) -> None:
        """Removes messages that are in the log already."""
        self._known |= repeats
        for request in self._requests:
            kept = [i for i in request.kept if not request.digests or request.digests[i] not in repeats]
            if len(kept) < len(request.kept):
                request.keep(kept)

    def stored(self, first_seq: int, first_id_seq: int) -> None:
        """Records that the remaining messages have the sequences and numbers from these on."""
        has_repeats = any(request.repeats for request in self._requests)
        for request in self._requests:
            request.first_seq, request.first_id_seq = first_seq, first_id_seq
            first_seq += request.batch.count
            first_id_seq += _later(request.batch)
            if request.digests and has_repeats:
                own = zip(request.kept, _id_seqs(request), strict=True)
                self._known |= {d: id_seq for index, id_seq in own if (d := request.digests[index]) is not None}

    def answers(self, publish_time: datetime) -> list[Appended | Stored]:
        """Returns the answer of each request."""
        return [self._answer(request, publish_time) for request in self._requests]

    def _answer(self, request: _Request, publish_time: datetime) -> Appended | Stored:
        if not request.digests:
            return Appended(request.first_seq, publish_time, request.first_id_seq)
        if not request.repeats:
            return Stored(_id_seqs(request), request.batch.sizes)
        own = dict(zip(request.kept, _id_seqs(request), strict=True))
        id_seqs = [
            own[index] if digest is None else self._known[digest] for index, digest in enumerate(request.digests)
        ]
        repeated = [index for index in range(len(request.digests)) if index not in own]
        return Stored(id_seqs, request.batch.sizes, repeated)


def _later(batch: EncodedMessages) -> int:
    return 0 if batch.scheduled is None else batch.scheduled.count


def _count(batch: EncodedMessages) -> int:
    return batch.count + _later(batch)


def _id_seqs(request: _Request) -> list[int]:
    """Returns the numbers of the messages' ids, once the messages are stored."""
    return id_seqs_from(request.batch, request.first_seq, request.first_id_seq)


async def append_new(
    connection: HotConnection, *, shard_id: int, requests: Sequence[EncodedMessages], now: datetime
) -> list[Appended | Stored] | None:
    """Appends as append_messages does, without repeats.  Returns the outcome of each request.

    A repeat is answered only once the first message is durable: a commit that locked a row waits for the disk, and
    with it for all that was committed before.
    """
    flush = _Flush(requests)
    publish_time = now
    while batches := flush.batches:
        later = [batch.scheduled for batch in batches if batch.scheduled is not None]
        try:
            locked, taken, repeats, *_ = await connection.run(*_statements(shard_id, flush, batches, later, now))
        except CheckViolation as error:
            if is_frozen(error):
                return None
            raise PartitionMissing from error
        if not locked:
            return None
        if not taken:
            digests, _ = flush.identities()
            flush.found({digests[row.number - 1]: row.seq for row in repeats})
            continue
        [(head, publish_time, last_id_seq)] = taken
        first_seq = head - sum(batch.count for batch in batches) + 1
        flush.stored(first_seq, last_id_seq - sum(part.count for part in later) + 1)
        break
    return flush.answers(publish_time)


def _statements(
    shard_id: int,
    flush: _Flush,
    batches: Sequence[EncodedMessages],
    later: Sequence[ScheduledPart],
    now: datetime,
) -> list[Bound]:
    digests, ranks = flush.identities()
    packed = array(OIDS["uuid"], [_LENGTH + digest for digest in digests], len(digests))
    (_, take), (_, append) = append_statements(shard_id, batches, now)
    token = random.getrandbits(63)
    known = {"shard_id": shard_id, "digests": packed, "since": now - flush.window, "flush": token}
    counted = {**known, "count": take["count"], "later": sum(part.count for part in later)}
    statements_: list[Bound] = [
        (_LOCK_HEAD, {"shard_id": shard_id}),
        (_TAKE_NEW_SEQUENCES, {**counted, "now": now}),
        (_FIND_REPEATS, known),
        (_INSERT_IDENTITIES, {**counted, "ranks": ranks}),
    ]
    if take["count"]:
        statements_.append((_APPEND_NEW_MESSAGES, {**append, "flush": token}))
    if later:
        statements_.append(schedule_statement(shard_id, later, now, token))
    return statements_


async def drop_identities_behind(connection: Connection, *, now: datetime) -> int:
    """Drop the partitions that the window of no topic reaches back to.  Returns how many."""
    await drop_detached_leftovers(connection, IDENTITIES)
    cursor = await connection.execute(_LONGEST_WINDOW)
    row = await cursor.fetchone()
    window = (row and row[0]) or timedelta(0)
    dropped = 0
    for partition in await list_partitions(connection, IDENTITIES):
        if partition.end > now - window - _STILL_ASKED and not partition.detaching:
            continue
        dropped += await drop_partition(connection, partition, IDENTITIES)
    return dropped
