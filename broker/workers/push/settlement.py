"""What became of pushed messages, written down many at a time: acks, nacks, and what was not sent after all."""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from broker.domain.ack_id import AttemptName
from broker.domain.errors import BrokerError
from broker.domain.retry_policy import RetryPolicy
from broker.runtime.ack_coalescer import AckCoalescer, NewDeadline
from broker.workers.push.endpoint import Item

_RELEASED = NewDeadline(0, "released")

logger = logging.getLogger(__name__)


class Settlement:
    """Filled by the senders; `run` is a supervised worker.  What cannot be written falls due by itself and is
    delivered again.
    """

    def __init__(self, coalescer: AckCoalescer) -> None:
        self._coalescer = coalescer
        self._acks: dict[AttemptName, set[int]] = {}
        self._deadlines: dict[NewDeadline, dict[AttemptName, set[int]]] = {}
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
        """They were not sent: due at once, the attempt not counted.  Not for attempts that hold an ordering key."""
        self._add(items, _RELEASED)

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

    async def flush(self) -> None:
        """Write what there is."""
        self._something.clear()
        acks, self._acks = self._acks, {}
        deadlines, self._deadlines = self._deadlines, {}
        written: Sequence[object] = await asyncio.gather(
            *([self._coalescer.acknowledge(acks)] if acks else []),
            *(
                self._coalescer.modify_ack_deadline(messages, new)
                for new, messages in deadlines.items()
                if messages
            ),
            return_exceptions=True,
        )
        for outcome in written:
            if isinstance(outcome, BrokerError):
                logger.warning("results of pushes were not written, so they are delivered again: %s", outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
