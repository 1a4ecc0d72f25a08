"""The readers of this process: their pulls and streams, outstanding messages, and speed of acks (F3).

    a pull, a stream ──handed out──► Reading ──acks of this process──► counts, and a sample of the times
                                        │
                                        └─ every five seconds ──► the table `readers`

The hot path costs a lookup for each response and for each attempt of a batch of acks, and nothing for a message.
Other changes of messages (acks through other processes, nacks, deadlines, seeks) are found by querying the
database, for the oldest MAX_CHECKED outstanding messages.
"""

import math
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from uuid import uuid4

import msgspec

from broker.core.process.database_clock import DatabaseClock
from broker.core.pulling.reader import WRITTEN_EVERY, Reader, ReaderKind
from broker.core.pulling.reader_rows import count_still_out, remove_readers, replace_readers
from broker.db.driver.database import Database
from broker.model.ack_id import AttemptName, attempt_name
from broker.model.delivery import Delivery

PASS_SECONDS = WRITTEN_EVERY.total_seconds()
FORGOTTEN_SECONDS = 60.0  # a reader without outstanding messages is forgotten so long after its last pull
MAX_WRITTEN = 1_000  # readers of a process; if there are more, those with the most outstanding messages
MAX_READERS = 20_000  # of a process; as many pulls and streams may wait
MAX_ATTEMPTS = 100_000  # attempts that are tracked; about 30 MB
MAX_CHECKED = 1_000  # attempts that a pass looks up in the database: about 10 ms
_SAMPLES = 256  # times of acks
_PASSES = 12  # by which the rate of acks is computed: a minute


class Reading:
    """A reader, as its process sees it."""

    __slots__ = (
        "acked",
        "address",
        "client_id",
        "history",
        "is_open",
        "kind",
        "opened_at",
        "outstanding",
        "principal",
        "seconds",
        "subscription_id",
        "used_at",
    )

    def __init__(
        self, subscription_id: int, kind: ReaderKind, *, client_id: str, principal: str, address: str, now: float
    ) -> None:
        self.subscription_id = subscription_id
        self.kind: ReaderKind = kind
        self.client_id = client_id
        self.principal = principal
        self.address = address
        self.opened_at = self.used_at = now
        self.is_open = True  # of a stream: until it ends
        self.outstanding = 0  # messages of the tracked attempts
        self.acked = 0
        self.seconds: deque[float] = deque(maxlen=_SAMPLES)
        self.history: deque[tuple[float, int]] = deque([(now, 0)], maxlen=_PASSES + 1)

    def is_over(self, now: float) -> bool:
        """Returns whether the reader need not be shown any more."""
        if self.outstanding:
            return False
        if self.kind == "STREAMING_PULL":
            return not self.is_open
        return now - self.used_at > FORGOTTEN_SECONDS


class _Attempt(msgspec.Struct, gc=False):
    """A followed attempt: who got it and when, and how many messages are left of it.

    A hundred thousand may be kept for long.  They form no cycles, so the garbage collector need not track them.
    """

    reading: Reading
    handed_out_at: float
    left: int

    def settle(self, count: int) -> None:
        """Counts messages that are no longer outstanding."""
        count = min(count, self.left)
        self.left -= count
        self.reading.outstanding -= count


class Readers:
    """The readers of one process."""

    def __init__(
        self, database: Database, clock: DatabaseClock, *, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._clock = clock
        self._ticks = ticks
        self._key = uuid4().hex  # of this process's rows
        self._process = f"{socket.gethostname()}:{os.getpid()}"
        self._pulls: dict[tuple[int, str, str], Reading] = {}
        self._all: set[Reading] = set()
        self._attempts: dict[AttemptName, _Attempt] = {}  # in the order in which they were delivered or looked up
        self._has_written = False

    def pulls(self, subscription_id: int, principal: str, address: str) -> Reading:
        """Records a pull.  Returns its reader."""
        now, key = self._ticks(), (subscription_id, principal, address)
        found = self._pulls.get(key)
        if found is None:
            found = Reading(subscription_id, "PULL", client_id="", principal=principal, address=address, now=now)
            if len(self._all) < MAX_READERS:
                self._pulls[key] = found
                self._all.add(found)
        found.used_at = now
        return found

    def opens(self, subscription_id: int, *, client_id: str, principal: str, address: str) -> Reading:
        """Records an open stream.  Returns its reader; call `closes` when the stream ends."""
        opened = Reading(
            subscription_id,
            "STREAMING_PULL",
            client_id=client_id,
            principal=principal,
            address=address,
            now=self._ticks(),
        )
        if len(self._all) < MAX_READERS:
            self._all.add(opened)
        return opened

    def closes(self, reading: Reading) -> None:
        """Marks a reader as closed.  Its messages are outstanding until they are acked or due.  May be repeated."""
        reading.is_open = False

    def handed_out(self, reading: Reading, deliveries: Sequence[Delivery]) -> None:
        """Counts messages that were claimed for the reader."""
        if reading not in self._all or len(self._attempts) >= MAX_ATTEMPTS:
            return
        now = self._ticks()
        for delivery in deliveries:
            count = len(delivery.messages)
            self._attempts[attempt_name(reading.subscription_id, delivery)] = _Attempt(reading, now, count)
            reading.outstanding += count

    def acked(self, messages: Iterable[Mapping[AttemptName, Collection[int]]]) -> None:
        """Counts messages that were acked through this process."""
        if not self._attempts:
            return
        now = self._ticks()
        for part in messages:
            for name, ordinals in part.items():
                attempt = self._attempts.get(name)
                if attempt is not None:
                    attempt.reading.acked += len(ordinals)
                    attempt.reading.seconds.append(now - attempt.handed_out_at)
                    self._settle(name, attempt, len(ordinals))

    def nacked(self, messages: Iterable[Mapping[AttemptName, Collection[int]]]) -> None:
        """Counts messages that were nacked through this process."""
        for part in messages if self._attempts else ():
            for name, ordinals in part.items():
                attempt = self._attempts.get(name)
                if attempt is not None:
                    self._settle(name, attempt, len(ordinals))

    def _settle(self, name: AttemptName, attempt: _Attempt, count: int) -> None:
        attempt.settle(count)
        if not attempt.left:
            del self._attempts[name]

    # --- every five seconds ----------------------------------------------------------------------------------

    async def run_once(self) -> int:
        """Writes the present readers; returns how many there are.  Writes nothing while there are none."""
        await self._check()
        now = self._ticks()
        for reading in [reading for reading in self._all if reading.is_over(now)]:
            self._all.discard(reading)
            key = (reading.subscription_id, reading.principal, reading.address)
            if self._pulls.get(key) is reading:
                del self._pulls[key]
        if not self._all and not self._has_written:
            return 0
        moment = self._clock.now()
        oldest = self._oldest()
        readers = [self._reader(reading, oldest.get(reading), now, moment) for reading in self._all]
        readers = sorted(readers, key=lambda reader: -reader.outstanding)[:MAX_WRITTEN]
        async with self._database.transaction() as connection:
            await replace_readers(connection, key=self._key, readers=readers, now=moment)
        self._has_written = bool(readers)
        return len(readers)

    async def leave(self) -> None:
        """Removes the readers of this process, which ends."""
        if self._has_written:
            async with self._database.transaction() as connection:
                await remove_readers(connection, key=self._key)

    async def _check(self) -> None:
        """See what of the oldest attempts is still out."""
        before = self._ticks() - PASS_SECONDS
        checked = [
            name for name, attempt in islice(self._attempts.items(), MAX_CHECKED) if attempt.handed_out_at <= before
        ]
        if not checked:
            return
        async with self._database.hot() as connection:
            counts = await count_still_out(connection, attempts=checked, now=self._clock.now())
        for name, count in zip(checked, counts, strict=True):
            attempt = self._attempts.get(name)
            if attempt is None:  # acked meanwhile
                continue
            self._settle(name, attempt, max(attempt.left - count, 0))
            if attempt.left:
                self._attempts[name] = self._attempts.pop(name)  # to the end, so that others are looked up next

    def _oldest(self) -> dict[Reading, float]:
        """Returns the time of the oldest outstanding delivery of each reader."""
        oldest: dict[Reading, float] = {}
        for attempt in self._attempts.values():
            if attempt.handed_out_at < oldest.get(attempt.reading, math.inf):
                oldest[attempt.reading] = attempt.handed_out_at
        return oldest

    def _reader(self, reading: Reading, oldest: float | None, now: float, moment: datetime) -> Reader:
        reading.history.append((now, reading.acked))
        (began, before), seconds = reading.history[0], sorted(reading.seconds)
        return Reader(
            subscription_id=reading.subscription_id,
            kind=reading.kind,
            process=self._process,
            client_id=reading.client_id,
            address=reading.address,
            principal=reading.principal,
            since=moment - timedelta(seconds=now - reading.opened_at),
            seen_at=moment,
            outstanding=reading.outstanding,
            oldest_since=None if oldest is None else moment - timedelta(seconds=now - oldest),
            acks_per_second=(reading.acked - before) / (now - began) if now > began else 0.0,
            ack_p50=seconds[len(seconds) // 2] if seconds else None,
            ack_p99=seconds[len(seconds) * 99 // 100] if seconds else None,
        )
