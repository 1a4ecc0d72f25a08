"""Runs transforms in sandboxes, which are child processes (features/transforms/sandbox/process.py), in fair turns.

The queued messages of a topic or subscription go to a sandbox together, up to a bound.  The sandbox returns the
results that it has after a tenth of a second, and the other messages have another turn.  Projects take turns by
the time that their transforms take, and a project with long turns leaves the last sandbox to others
(fairness/turns.py). So a new message waits for one turn, and not for a function that never ends.

If a sandbox dies, a single message may be the cause.  The messages are tried again one by one, and a message that
ends the sandbox again has failed.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter

from broker.core.process.process_apart import Died, ProcessApart
from broker.core.process.tasks import Tasks
from broker.fairness.turns import Turns
from broker.features.transforms.sandbox.jobs import (
    MAX_PROGRAMS,
    OUTCOMES,
    Check,
    Ending,
    Forget,
    Message,
    Outcome,
    Run,
    encode,
)
from broker.model.errors import BrokerError, Unavailable
from broker.model.transforms import Transforms
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import SANDBOX_DEATHS, TRANSFORM_SECONDS

SANDBOXES = 2  # of a process: one is free while a slow function runs in the other
MAX_TURN_MESSAGES = 1_000
MAX_TURN_BYTES = 8_000_000  # unless one message is larger
LONG_SECONDS = 0.05  # a project with turns of this length leaves the last sandbox to others
ANSWER_SECONDS = 20.0  # for a sandbox that hangs; one that is busy ends itself after two seconds of processor time
ALONE = 200  # messages that are sent one by one after a death
MAX_WAIT_SECONDS = 5.0  # for a first turn
OUT_OF_TIME = -signal.SIGPROF
DIED = "it took too much time or memory, and was ended"


@dataclass(frozen=True, slots=True)
class Program:
    """The transforms of a resource, with a unique `name`."""

    project: str
    name: str
    transforms: Transforms


@dataclass(eq=False, slots=True)
class _Work:
    """Messages of one call, with the `outcomes` of the first of them.

    `begun`: some of them have had a turn.  `given_up`: the caller no longer waits.
    """

    messages: Sequence[Message]
    done: asyncio.Future[None]
    outcomes: list[Outcome] = field(default_factory=list)
    begun: bool = False
    given_up: bool = False

    @property
    def left(self) -> int:
        return len(self.messages) - len(self.outcomes)


@dataclass(eq=False, slots=True)
class _Queue:
    """The waiting messages of a program, which has one turn at a time.

    `alone`: the number of messages that are still sent one by one.  `excused`: the next message was in a sandbox
    that died for another reason than its time limit.
    """

    program: Program
    works: deque[_Work] = field(default_factory=deque)
    alone: int = 0
    excused: bool = False

    def take(self) -> list[Message]:
        """Return the first messages, as many as a turn may have."""
        self.drop_given_up()
        most = 1 if self.alone else MAX_TURN_MESSAGES
        taken: list[Message] = []
        size = 0
        for work in self.works:
            work.begun = True
            for message in islice(work.messages, len(work.outcomes), None):
                size += len(message.data)
                if len(taken) >= most or (taken and size > MAX_TURN_BYTES):
                    return taken
                taken.append(message)
        return taken

    def drop_given_up(self) -> None:
        """Drop the work of callers that no longer wait."""
        self.works = deque(work for work in self.works if not work.given_up)

    def give(self, outcomes: Sequence[Outcome]) -> None:
        """Add the outcomes of the first messages."""
        rest = iter(outcomes)
        while self.works:
            work = self.works[0]
            work.outcomes += islice(rest, work.left)
            if work.left:
                return
            self.works.popleft()
            if not work.done.done():
                work.done.set_result(None)

    def fail(self, error: BaseException) -> None:
        while self.works:
            done = self.works.popleft().done
            if not done.done():
                done.set_exception(error)
                done.exception()  # its caller may be gone


@dataclass(eq=False, slots=True)
class _Checking:
    """A check of transforms; `reason`: what is wrong with them, "" if nothing is."""

    project: str
    body: bytes
    reason: asyncio.Future[str]


@dataclass(eq=False, slots=True)
class _Sandbox:
    """A sandbox, with the names of the programs that it has (`known`)."""

    process: ProcessApart
    known: set[str] = field(default_factory=set)


class Sandboxes:
    """The sandboxes of a process, which are started when they are needed."""

    def __init__(
        self,
        tasks: Tasks,
        counters: Counters,
        *,
        count: int = SANDBOXES,
        wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        """`wait_seconds`: the longest wait for a first turn."""
        self._wait_seconds = wait_seconds
        self._tasks = tasks
        self._counters = counters
        self._all = [
            _Sandbox(
                ProcessApart(
                    "broker.features.transforms.sandbox.process",
                    what="runs transforms",
                    seconds=ANSWER_SECONDS,
                    bare=True,
                )
            )
            for _ in range(count)
        ]
        self._free = list(reversed(self._all))
        self._turns = Turns(count, long_seconds=LONG_SECONDS)
        self._queues: dict[str, _Queue] = {}  # by program: those that wait, or have a turn

    @property
    def pids(self) -> list[int]:
        """The process ids of the sandboxes that run."""
        return [pid for each in self._all if (pid := each.process.pid) is not None]

    async def run(self, program: Program, messages: Sequence[Message], *, seconds: float) -> Sequence[Outcome]:
        """Return the outcomes of the first messages, usually all, that are done within this number of seconds.

        Raises Unavailable if sandboxes cannot be started, or too many messages wait for them.
        """
        work = _Work(messages, asyncio.get_running_loop().create_future())
        queue = self._queues.get(program.name)
        if queue is None:
            queue = self._queues[program.name] = _Queue(program)
            self._start(queue)
        queue.works.append(work)
        try:
            await asyncio.wait((work.done,), timeout=min(seconds, self._wait_seconds))
            if work.begun and not work.done.done():
                await asyncio.wait((work.done,), timeout=max(seconds - self._wait_seconds, 0))
        finally:
            work.given_up = True
        if work.done.done():
            work.done.result()
        elif not work.begun:
            raise Unavailable("Too many messages wait to be transformed; try again.")
        return tuple(work.outcomes)

    async def check(self, project: str, transforms: Transforms, where: str) -> str:
        """Return what is wrong with the code of transforms, and where; "": nothing.  Raises Unavailable."""
        reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        checking = _Checking(project, encode(Check(transforms, where)), reason)
        self._tasks.start(self._serve_check(checking), name="checks of transforms")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await reason
        except TimeoutError as error:
            raise Unavailable("Too many transforms wait to be checked; try again.") from error

    async def close(self) -> None:
        """End the sandboxes, once the tasks that use them have ended."""
        for sandbox in self._all:
            await sandbox.process.end()

    # --- turns ---------------------------------------------------------------------------------------------------

    def _start(self, queue: _Queue) -> None:
        self._tasks.start(self._serve(queue), name="transforms")

    async def _serve(self, queue: _Queue) -> None:
        """Run the queued messages of a program, turn after turn, until none is left."""
        program = queue.program
        try:
            while True:
                async with self._turns.of(program.project, (program.project, program.name)):
                    with self._sandbox() as sandbox:
                        await self._run(queue, sandbox)
                queue.drop_given_up()
                if not queue.works:
                    return
        except BaseException as error:
            queue.fail(_for_callers(error))
            raise
        finally:
            del self._queues[program.name]

    async def _serve_check(self, checking: _Checking) -> None:
        try:
            async with self._turns.of(checking.project, (checking.project, "check")):
                with self._sandbox() as sandbox:
                    await self._check(checking, sandbox)
        except BaseException as error:
            if not checking.reason.done():
                checking.reason.set_exception(_for_callers(error))
                checking.reason.exception()  # its caller may be gone
            raise

    @contextmanager
    def _sandbox(self) -> Iterator[_Sandbox]:
        """Use a free sandbox: there is one for each turn."""
        sandbox, began = self._free.pop(), perf_counter()
        try:
            yield sandbox
        finally:
            self._free.append(sandbox)
            TRANSFORM_SECONDS.observe(self._counters.process, int((perf_counter() - began) * 1e6))

    async def _check(self, checking: _Checking, sandbox: _Sandbox) -> None:
        try:
            outcomes = await self._ask(sandbox, checking.body)
            reason = outcomes[0].reason if outcomes else ""
        except Died:
            reason = DIED
        if not checking.reason.done():
            checking.reason.set_result(reason)

    async def _run(self, queue: _Queue, sandbox: _Sandbox) -> None:
        messages = queue.take()
        if not messages:
            return
        try:
            outcomes = await self._ask_to_run(queue.program, messages, sandbox)
        except Died as death:
            if not queue.alone:
                queue.alone = ALONE
                return
            if death.code != OUT_OF_TIME and not queue.excused:  # it may have been killed from outside
                queue.excused = True
                return
            outcomes = [Outcome(Ending.FAILED, reason=DIED)]
        except BrokerError as error:
            queue.fail(error)
            return
        queue.alone, queue.excused = max(queue.alone - 1, 0), False
        queue.give(outcomes)

    async def _ask_to_run(self, program: Program, messages: list[Message], sandbox: _Sandbox) -> Sequence[Outcome]:
        known = sandbox.known
        if not sandbox.process.runs:
            known.clear()
        transforms = None if program.name in known else program.transforms
        if transforms is not None and len(known) >= MAX_PROGRAMS:
            await self._ask(sandbox, encode(Forget(list(known))))
            known.clear()
        outcomes = await self._ask(sandbox, encode(Run(program.name, transforms, messages)))
        known.add(program.name)
        return outcomes

    async def _ask(self, sandbox: _Sandbox, body: bytes) -> Sequence[Outcome]:
        try:
            return OUTCOMES.decode(await sandbox.process.ask(body))
        except Died:
            sandbox.known.clear()
            self._counters.process[SANDBOX_DEATHS] += 1
            raise


def _for_callers(error: BaseException) -> BaseException:
    return Unavailable("The broker stops.") if isinstance(error, asyncio.CancelledError) else error
