"""What became of pushed messages, written down many at a time: acks, nacks, and what was not sent after all."""

import asyncio
import logging
from collections.abc import Iterable

from broker.domain.ack_id import AttemptName
from broker.domain.errors import BrokerError, Unavailable
from broker.domain.retry_policy import RetryPolicy
from broker.runtime.ack_batch import NewDeadline
from broker.runtime.ack_coalescer import AckCoalescer
from broker.workers.push.endpoint import Item

_RELEASED = NewDeadline(0, "released")
_AWAY_SECONDS = 0.5  # after which acks that the database did not take are sent to it again
_PUSHES = "pushes"  # they take turns as if they were a project
_MAX_KEPT = 100_000  # attempts whose acks wait for the database; what is beyond is delivered again

logger = logging.getLogger(__name__)


class Settlement:
    """Filled by the senders; `run` is a supervised worker.

    While the database is away acks are kept: what an endpoint took it should not get again.  What else cannot be
    written falls due by itself and is delivered again.
    """

    def __init__(self, coalescer: AckCoalescer) -> None:
        self._coalescer = coalescer
        self._acks: dict[AttemptName, set[int]] = {}
        self._deadlines: dict[NewDeadline, dict[AttemptName, set[int]]] = {}
        self._something = asyncio.Event()

    def acknowledge(self, items: Iterable[Item]) -> None:
        """They were delivered."""
        for item in items:
            self._acks.setdefault(item.name, set()).add(item.ordinal)
        self._something.set()

    def nack(self, items: Iterable[Item], retry_policy: RetryPolicy | None, failure: str) -> None:
        """They were refused, or not answered in time: `failure` says which (domain/dead_letter.py)."""
        self._add(items, NewDeadline(0, "nacked", retry_policy, failure=failure))

    def release(self, items: Iterable[Item]) -> None:
        """They were not sent: due at once, the attempt not counted."""
        self._add(items, _RELEASED)

    def _add(self, items: Iterable[Item], deadline: NewDeadline) -> None:
        messages = self._deadlines.setdefault(deadline, {})
        for item in items:
            messages.setdefault(item.name, set()).add(item.ordinal)
        self._something.set()

    async def run(self) -> None:
        """Write what comes, for ever; what comes meanwhile goes with the next."""
        while True:
            await self._something.wait()
            if not await self.flush():
                await asyncio.sleep(_AWAY_SECONDS)

    async def close(self) -> None:
        """Write what there is, and wait for what is being written."""
        await self.flush()
        await self._coalescer.acknowledge({}, project=_PUSHES)  # flushes follow each other

    async def flush(self) -> bool:
        """Write what there is.  Returns whether the database took it."""
        self._something.clear()
        acks, self._acks = self._acks, {}
        deadlines, self._deadlines = self._deadlines, {}
        of_acks, *others = await asyncio.gather(
            self._coalescer.acknowledge(acks, project=_PUSHES),
            *(
                self._coalescer.modify_ack_deadline(messages, new, project=_PUSHES)
                for new, messages in deadlines.items()
            ),
            return_exceptions=True,
        )
        if isinstance(of_acks, Unavailable):
            self._take_back(acks)
        for outcome in (of_acks, *others):
            if isinstance(outcome, BaseException) and not isinstance(outcome, BrokerError):
                raise outcome
        failed = next((outcome for outcome in (of_acks, *others) if isinstance(outcome, BrokerError)), None)
        if failed is not None:
            logger.debug("results of pushes were not written: %s", failed)
        return failed is None

    def _take_back(self, acks: dict[AttemptName, set[int]]) -> None:
        for name, ordinals in acks.items():
            if name in self._acks or len(self._acks) < _MAX_KEPT:
                self._acks.setdefault(name, set()).update(ordinals)
        if self._acks:
            self._something.set()
