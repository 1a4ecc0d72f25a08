"""The open tails of this process, which watch what is published, or written into a journal (F3).

    a publish, here or elsewhere ──wake-up of its shard──► the tails of the topic read the log
    a change of a subscription ──► the tails of its journal check whether they may continue

A publish costs a lookup in an empty dictionary if there are no tails.  The number of tails is bounded for a process
and for a project, and projects share it (fairness/shared_capacity.py).
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress

from broker.fairness.shared_capacity import SharedCapacity
from broker.model.errors import ResourceExhausted

MAX_TAILS = 50  # of a process
MAX_TAILS_OF_PROJECT = 10


class Tail:
    """`name`: the subscription whose changes it wants to hear of, if any.  `stopping`: the process stops."""

    def __init__(self, project: str, shard_ids: Sequence[int], name: str) -> None:
        self.project = project
        self.name = name
        self.shard_ids = shard_ids
        self.stopping = False
        self.arrived = asyncio.Event()

    async def wait(self, seconds: float) -> bool:
        """Waits until something may have been published or changed; False: nothing was."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.arrived.wait()
            self.arrived.clear()
            return True
        return False


class Tails:
    """The open tails of one process."""

    def __init__(self) -> None:
        self._open: set[Tail] = set()
        self._by_shard: dict[int, set[Tail]] = {}
        self._shared_capacity = SharedCapacity(MAX_TAILS)
        self._stopping = False

    def open(self, project: str, shard_ids: Sequence[int], *, name: str = "") -> Tail:
        """Watch shards, or a subscription, or (an export) nothing; `close` ends it.  Raises ResourceExhausted."""
        path = (project,)
        if self._shared_capacity.held(path) >= MAX_TAILS_OF_PROJECT or self._shared_capacity.take(path) is not None:
            raise ResourceExhausted(
                f"Too many tails and exports are open in this process: {MAX_TAILS_OF_PROJECT} of a project and "
                f"{MAX_TAILS} in all are the most, of which projects have shares; close one."
            )
        tail = Tail(project, shard_ids, name)
        tail.stopping = self._stopping
        self._open.add(tail)
        for shard_id in shard_ids:
            self._by_shard.setdefault(shard_id, set()).add(tail)
        return tail

    def close(self, tail: Tail) -> None:
        self._open.discard(tail)
        self._shared_capacity.give_back((tail.project,))
        for shard_id in tail.shard_ids:
            tails = self._by_shard[shard_id]
            tails.discard(tail)
            if not tails:
                del self._by_shard[shard_id]

    def watched_shards(self) -> Collection[int]:
        """Returns the shards that have open tails."""
        return self._by_shard.keys()

    def wake(self, shard_id: int | None) -> None:
        """Wakes the tails of a shard with new messages; None: any shard may have some."""
        if not self._by_shard:
            return
        shard_ids = self._by_shard if shard_id is None else (shard_id,)
        for watched in shard_ids:
            for tail in self._by_shard.get(watched, ()):
                tail.arrived.set()

    def changed(self, name: str | None) -> None:
        """Wakes the tails of a subscription that was changed or deleted; None: any may have been."""
        for tail in self._open:
            if tail.name and name in (tail.name, None):
                tail.arrived.set()

    def stop(self) -> None:
        """End all of them, and let no other begin."""
        self._stopping = True
        for tail in self._open:
            tail.stopping = True
            tail.arrived.set()
