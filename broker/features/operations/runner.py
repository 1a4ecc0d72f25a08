"""Runs operations, step by step (G1).

A step is one transaction: it locks the operation's row, does its work, and stores its progress.  So a step that is
not committed has not happened.  The lock of a process that was killed is released, and the next runner continues
from the last commit (docs/decisions/0031).  Every process has a runner; they take turns at an operation, and
operations take turns by the time at which their next step is due.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from broker.core.context.core import Core
from broker.core.log.partitions import with_partitions
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import COMMIT
from broker.features.operations import rows as store
from broker.features.operations.operation import Operation, Step
from broker.model.errors import Aborted, BrokerError, Unavailable
from broker.model.operation_verb import Verb
from broker.observability.log import fields_of, reason
from broker.observability.metrics.families import OPERATION_STEPS, OPERATIONS_ENDED

POLL_SECONDS = 5.0  # nobody has told of anything for so long: one check by an index with nothing in it
_BUSY_SECONDS = 1.0  # another process is at what is due
_AGAIN = timedelta(seconds=0.1)  # after a step that has failed and may go well; twice as long each time
_MOST_DOUBLINGS = 8
_MOST_FAILURES = 5  # of an operation's steps in a process, one after the other


class Kind(Protocol):
    """The work of the operations of one verb."""

    async def step(self, connection: HotConnection, operation: Operation) -> Step:
        """Does one bounded piece of work within the transaction of `connection`, which it does not end.

        Raises Aborted (it met a concurrent change, and is tried again), Unavailable, PartitionMissing; another
        BrokerError ends the operation.
        """

    def committed(self, operation: Operation, step: Step) -> None:
        """Notifies the waiting consumers that a step has made messages available to claim, once it has been
        committed.
        """


class OperationRunner:
    """The runner of one process.  `run` is a supervised worker."""

    def __init__(self, core: Core, kinds: Mapping[Verb, Kind]) -> None:
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._kinds = kinds
        self._states = core.states
        self._counts = core.counters.process
        self._something = asyncio.Event()
        self._failures: dict[str, int] = {}
        self._left: set[str] = set()  # verbs of newer brokers, which the log has been told of

    @property
    def healthy_seconds(self) -> float:
        """The time after which a run counts as healthy."""
        return 2 * POLL_SECONDS

    def wake(self) -> None:
        """Wakes the runner because an operation may have been started, in this process or another."""
        self._something.set()

    async def run(self) -> None:
        """Runs steps until an error, which the supervisor handles."""
        while True:
            self._something.clear()
            pause = await self.run_once()
            if pause > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(pause, POLL_SECONDS)):
                        await self._something.wait()
            else:
                await asyncio.sleep(0)  # others of this process have had no turn meanwhile

    async def run_once(self) -> float:
        """Runs one step of one operation, if any is due.  Returns the seconds to wait before the next call."""
        locked: list[Operation] = []

        async def step_once() -> Step | store.Ahead:
            locked.clear()
            async with self._database.hot() as connection:
                found = await store.lock_operation(connection, verbs=self._kinds.keys(), now=self._clock.now())
                if found is None:
                    return await store.read_next_step(connection, verbs=self._kinds.keys())
                locked.append(found)
                return await self._step(connection, found)

        try:
            step = await with_partitions(self._database, self._clock.now, step_once)
        except Exception as error:
            if not locked:
                raise
            await self._failed(locked[0], error)
            return 0.0
        if isinstance(step, store.Ahead):
            return self._until(step)
        [operation] = locked
        self._failures.pop(operation.name, None)
        self._kind(operation).committed(operation, step)
        self._counts[OPERATION_STEPS] += 1
        if step.ended:
            self._ended(operation, "succeeded", operation.done + step.done)
            await self._wake_ups.announce(operation.name)
        return 0.0

    def _until(self, ahead: store.Ahead) -> float:
        if ahead.unknown is not None and ahead.unknown[1] not in self._left:
            name, verb = ahead.unknown
            self._left.add(verb)
            what = f"{name} is left to a newer broker: this one does not know what the verb {verb} is"
            self._states.report("operations", what, level=logging.WARNING, fields=fields_of(name, verb=verb))
        if ahead.next_step_at is None:
            return POLL_SECONDS
        seconds = (ahead.next_step_at - self._clock.now()).total_seconds()
        return seconds if seconds > 0 else _BUSY_SECONDS

    async def _step(self, connection: HotConnection, operation: Operation) -> Step:
        try:
            step = await self._kind(operation).step(connection, operation)
            await connection.run(store.step_written(operation, step, self._clock.now()), (COMMIT, {}))
        except BaseException:
            await connection.close()  # its transaction is open
            raise
        return step

    def _kind(self, operation: Operation) -> Kind:
        return self._kinds[Verb(operation.verb)]

    async def _failed(self, operation: Operation, error: Exception) -> None:
        """Ends an operation whose step has failed, unless another attempt may succeed: then its next step is
        postponed.

        Raises Unavailable (the database is not available, which is no failure of the operation).
        """
        failures = self._failures[operation.name] = self._failures.get(operation.name, 0) + 1
        passes_by = isinstance(error, Aborted | Unavailable)
        known = isinstance(error, BrokerError) and error.code != "INTERNAL"
        now = self._clock.now()
        async with self._database.transaction() as connection:
            if passes_by or (not known and failures < _MOST_FAILURES):
                until = now + _AGAIN * 2 ** min(failures - 1, _MOST_DOUBLINGS)
                await store.put_off(connection, name=operation.name, until=until)
                if failures >= _MOST_FAILURES:
                    what = f"{operation.name} ({operation.verb} of {operation.target}) makes no progress"
                    self._states.happens(
                        "operations", operation.name, what, reason(error), fields=_fields(operation)
                    )
                return
            code, message = ("INTERNAL", f"A step failed {failures} times.")
            if isinstance(error, BrokerError) and known:
                code, message = error.code, error.message
            await store.end_operation(connection, name=operation.name, code=code, message=message, now=now)
        self._failures.pop(operation.name, None)
        self._ended(operation, f"failed, {reason(error)}", operation.done)
        await self._wake_ups.announce(operation.name)

    def _ended(self, operation: Operation, how: str, done: int) -> None:
        self._counts[OPERATIONS_ENDED["failed" if how.startswith("failed") else "succeeded"]] += 1
        what = f"{operation.name} ({operation.verb} of {operation.target}) has {how}: {done:,} messages"
        self._states.report("operations", what, fields=_fields(operation) | {"status": how, "count": done})


def _fields(operation: Operation) -> dict[str, object]:
    """Returns the fields of an operation in the log."""
    return fields_of(operation.name, operation.target, verb=str(operation.verb))
