"""A tail of a topic that the readers of one process share: the log is read once for all of them (F3).

    the log ──one reading──► SharedTail ──► a queue for each reader ──► its stream

A reader that begins further back reads the log by itself until it has come as far as the tail, and then joins it.
"""

import asyncio
from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from broker.core.log.log_page import LogPosition, MatchedMessage
from broker.core.process.tails import Tail
from broker.features.inspect.tail_position import Positions
from broker.model.errors import ResourceExhausted

MAX_READERS = 100  # of one tail
MAX_QUEUED = 10  # readings in the queue of a slow reader, each of at most 1 MB; readers share them


@dataclass(frozen=True, slots=True)
class Reading:
    """The messages that were read of a shard up to `position`; before them, `skipped` messages were left out."""

    position: LogPosition
    messages: Sequence[MatchedMessage] = ()
    skipped: int = 0


@dataclass(slots=True, eq=False)
class Reader:
    """The queue of readings of one reader."""

    queue: deque[Reading] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, reading: Reading) -> None:
        """Queues a reading.  If the queue is full, its messages are left out and counted as skipped."""
        if len(self.queue) >= MAX_QUEUED:
            self._leave_out(reading)
        else:
            self.queue.append(reading)
        self.changed.set()

    def _leave_out(self, reading: Reading) -> None:
        skipped = reading.skipped + len(reading.messages)
        of_shard = [each for each in self.queue if each.position.shard_id == reading.position.shard_id]
        if of_shard and not of_shard[-1].messages:
            skipped += of_shard[-1].skipped
            self.queue.remove(of_shard[-1])
        self.queue.append(Reading(reading.position, skipped=skipped))

    async def wait(self, seconds: float) -> None:
        """Waits until there is something to take or the tail ends, at most for some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        self.changed.clear()


class SharedTail:
    """The tail of a log that all readers with the same filter share.  `positions`: how far each shard has been
    read.
    """

    def __init__(self, key: Hashable, tail: Tail) -> None:
        self.key = key
        self.tail = tail
        self.positions: dict[int, LogPosition] = {}
        self.begun = asyncio.Event()
        self.has_ended = False
        self.error: Exception | None = None  # the error that ended the tail
        self._readers: dict[Reader, bool] = {}  # whether each has joined

    @property
    def is_read(self) -> bool:
        return bool(self._readers)

    def enter(self) -> Reader:
        """Returns a new reader, which gets nothing before it joins.  Raises ResourceExhausted."""
        if len(self._readers) >= MAX_READERS:
            raise ResourceExhausted(
                f"Too many readers of this tail are open in this process, which has at most {MAX_READERS}."
            )
        reader = Reader()
        self._readers[reader] = False
        return reader

    def leave(self, reader: Reader) -> None:
        del self._readers[reader]

    def join(self, reader: Reader, positions: Positions) -> bool:
        """Gives a reader all further readings, if it has read as far as the tail.  Returns whether it has."""
        if any(positions[shard_id].seq < each.seq for shard_id, each in self.positions.items()):
            return False
        self._readers[reader] = True
        return True

    def read(self, reading: Reading) -> None:
        """Gives a reading to all readers that have joined."""
        self.positions[reading.position.shard_id] = reading.position
        if not (reading.messages or reading.skipped):
            return
        for reader, has_joined in self._readers.items():
            if has_joined:
                reader.put(reading)

    def end(self, error: Exception | None) -> None:
        self.has_ended, self.error = True, error
        self.begun.set()
        for reader in self._readers:
            reader.changed.set()
