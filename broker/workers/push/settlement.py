"""What became of pushed messages, written down many at a time: acks, nacks, and what was not sent after all."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from broker.domain.ack_id import AttemptName
from broker.domain.errors import BrokerError
from broker.domain.retry_policy import RetryPolicy
from broker.runtime.ack_coalescer import AckCoalescer, NewDeadline
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.wake_ups import WakeUps
from broker.store.database import Database
from broker.store.delivery_attempts import release_attempts
from broker.workers.push.endpoint import Item

_RELEASED = NewDeadline(0, "released")

logger = logging.getLogger(__name__)


class Settlement:
    """Filled by the senders; `run` is a supervised worker.  What cannot be written falls due by itself and is
    delivered again.
    """

    def __init__(
        self, database: Database, clock: DatabaseClock, coalescer: AckCoalescer, wake_ups: WakeUps
    ) -> None:
        self._database = database
        self._clock = clock
        self._coalescer = coalescer
        self._wake_ups = wake_ups
        self._acks: dict[AttemptName, set[int]] = {}
        self._deadlines: dict[NewDeadline, dict[AttemptName, set[int]]] = {}
        self._released_in_order: dict[tuple[int, int], set[int]] = {}  # (shard_id, subscription_id) -> attempt ids
        self._something = asyncio.Event()

    def acknowledge(self, items: Iterable[Item]) -> None:
        """They were delivered."""
        for item in items:
            self._acks.setdefault(item.name, set()).add(item.position)
        self._something.set()

    def nack(self, items: Iterable[Item], retry_policy: RetryPolicy | None) -> None:
        """They were refused, or not answered in time."""
        self._add(items, NewDeadline(0, "pending", retry_policy))

    def release(self, items: Iterable[Item]) -> None:
        """They were not sent: due at once, the attempt not counted."""
        unordered = []
        for item in items:
            name = item.name
            if name.ordered:  # of a key one message is out at a time: the attempt is released as a whole
                attempts = self._released_in_order.setdefault((name.shard_id, name.subscription_id), set())
                attempts.add(name.attempt_id)
            else:
                unordered.append(item)
        self._add(unordered, _RELEASED)

    def _add(self, items: Iterable[Item], deadline: NewDeadline) -> None:
        messages = self._deadlines.setdefault(deadline, {})
        for item in items:
            messages.setdefault(item.name, set()).add(item.position)
        self._something.set()

    async def run(self) -> None:
        """Write what comes, for ever; what comes meanwhile goes with the next."""
        while True:
            await self._something.wait()
            await self.flush()

    async def close(self) -> None:
        """Write what there is, and wait for what is being written."""
        await self.flush()
        await self._coalescer.acknowledge({})  # flushes follow each other

    async def flush(self) -> None:
        """Write what there is."""
        self._something.clear()
        acks, self._acks = self._acks, {}
        deadlines, self._deadlines = self._deadlines, {}
        in_order, self._released_in_order = self._released_in_order, {}
        written: Sequence[object] = await asyncio.gather(
            *([self._coalescer.acknowledge(acks)] if acks else []),
            *(
                self._coalescer.modify_ack_deadline(messages, new)
                for new, messages in deadlines.items()
                if messages
            ),
            *([self._release_in_order(in_order)] if in_order else []),
            return_exceptions=True,
        )
        for outcome in written:
            if isinstance(outcome, BrokerError):
                logger.warning("results of pushes were not written, so they are delivered again: %s", outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _release_in_order(self, attempts: Mapping[tuple[int, int], set[int]]) -> None:
        for (shard_id, subscription_id), attempt_ids in sorted(attempts.items()):
            async with self._database.hot() as connection:
                await release_attempts(
                    connection,
                    shard_id=shard_id,
                    subscription_id=subscription_id,
                    attempt_ids=sorted(attempt_ids),
                    now=self._clock.now(),
                )
            self._wake_ups.redeliverable(subscription_id)
