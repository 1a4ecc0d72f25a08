"""Where transforms run: a few processes of this one (transforms/sandbox.py), and whose turn it is in them.

The messages of one topic or subscription that wait go to a sandbox together, up to a bound, and come back as far
as it got within a tenth of a second; the rest has another turn.  Projects take turns by the time that theirs
take, and one whose turns are long leaves the last sandbox to others (turns.py).  So a newcomer waits for one
turn, and not for a function that never ends.

A sandbox that dies had maybe one message to blame for it.  What it had is tried again one by one; what it dies of
then has failed.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter

from broker.domain.errors import BrokerError, Unavailable
from broker.domain.transforms import Transforms
from broker.runtime.process_apart import Died, ProcessApart
from broker.runtime.tasks import Tasks
from broker.runtime.turns import Turns
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.metrics.families import SANDBOX_DEATHS, TRANSFORM_SECONDS
from broker.transforms.jobs import MAX_PROGRAMS, OUTCOMES, Check, Ending, Forget, Message, Outcome, Run, encode

SANDBOXES = 2  # of a process: one for whoever comes while a function takes its time in the other
MAX_TURN_MESSAGES = 1_000
MAX_TURN_BYTES = 8_000_000  # unless one message is larger
LONG_SECONDS = 0.05  # of a turn that leaves the last sandbox to others
ANSWER_SECONDS = 20.0  # a sandbox ends itself after two of the processor; this is for one that stands still
ALONE = 200  # messages that go one by one after a death
MAX_WAIT_SECONDS = 5.0  # for a first turn
OUT_OF_TIME = -signal.SIGPROF
DIED = "it took too much time or memory, and was ended"


@dataclass(frozen=True, slots=True)
class Program:
    """The transforms of a resource; `name` is that of no others."""

    project: str
    name: str
    transforms: Transforms


@dataclass(eq=False, slots=True)
class _Work:
    """`outcomes` of the first messages, as they come.  `begun`: it has had a turn.  `given_up`: nobody waits."""

    messages: Sequence[Message]
    done: asyncio.Future[None]
    outcomes: list[Outcome] = field(default_factory=list)
    begun: bool = False
    given_up: bool = False

    @property
    def left(self) -> int:
        return len(self.messages) - len(self.outcomes)


@dataclass(eq=False, slots=True)
class _Line:
    """The messages of a program that wait.  It has one turn at a time.  `alone`: so many go one by one; `excused`:
    the next one was in a sandbox that died of something else than its bound of time.
    """

    program: Program
    works: deque[_Work] = field(default_factory=deque)
    alone: int = 0
    excused: bool = False

    def take(self) -> list[Message]:
        """What goes with one turn, from the front."""
        self.leave()
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

    def leave(self) -> None:
        """Whoever waits no more is not served."""
        self.works = deque(work for work in self.works if not work.given_up)

    def give(self, outcomes: Sequence[Outcome]) -> None:
        """These are of what was taken."""
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
    """Whether transforms can be used."""

    project: str
    body: bytes
    reason: asyncio.Future[str]


@dataclass(eq=False, slots=True)
class _Sandbox:
    """`known`: the programs that it has."""

    process: ProcessApart
    known: set[str] = field(default_factory=set)


class Sandboxes:
    """One for a process of the broker.  They are started when they are needed."""

    def __init__(
        self,
        tasks: Tasks,
        counters: Counters,
        *,
        count: int = SANDBOXES,
        wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        """`wait_seconds`: for a first turn."""
        self._wait_seconds = wait_seconds
        self._tasks = tasks
        self._counters = counters
        self._all = [
            _Sandbox(
                ProcessApart("broker.transforms.sandbox", what="runs transforms", seconds=ANSWER_SECONDS, bare=True)
            )
            for _ in range(count)
        ]
        self._free = list(reversed(self._all))
        self._turns = Turns(count, long_seconds=LONG_SECONDS)
        self._lines: dict[str, _Line] = {}  # by program: those that wait, or have a turn

    @property
    def pids(self) -> list[int]:
        """Of those that run."""
        return [pid for each in self._all if (pid := each.process.pid) is not None]

    async def run(self, program: Program, messages: Sequence[Message], *, seconds: float) -> Sequence[Outcome]:
        """The outcomes of the first messages: of as many as are done within so many seconds, mostly all.

        Raises Unavailable: sandboxes cannot be started, or too much waits for them.
        """
        work = _Work(messages, asyncio.get_running_loop().create_future())
        line = self._lines.get(program.name)
        if line is None:
            line = self._lines[program.name] = _Line(program)
            self._start(line)
        line.works.append(work)
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
        """What is wrong with their code, and where; "": nothing.  Raises Unavailable."""
        reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        checking = _Checking(project, encode(Check(transforms, where)), reason)
        self._tasks.start(self._serve_check(checking), name="checks of transforms")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await reason
        except TimeoutError as error:
            raise Unavailable("Too many transforms wait to be checked; try again.") from error

    async def close(self) -> None:
        """End them; the tasks are ended before."""
        for sandbox in self._all:
            await sandbox.process.end()

    # --- turns ---------------------------------------------------------------------------------------------------

    def _start(self, line: _Line) -> None:
        self._tasks.start(self._serve(line), name="transforms")

    async def _serve(self, line: _Line) -> None:
        """Run what waits in the line, a turn after the other, until nothing is left."""
        program = line.program
        try:
            while True:
                async with self._turns.of(program.project, (program.project, program.name)):
                    with self._sandbox() as sandbox:
                        await self._run(line, sandbox)
                line.leave()
                if not line.works:
                    return
        except BaseException as error:
            line.fail(_for_callers(error))
            raise
        finally:
            del self._lines[program.name]

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
        """A free sandbox: there is one for each turn."""
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

    async def _run(self, line: _Line, sandbox: _Sandbox) -> None:
        messages = line.take()
        if not messages:
            return
        try:
            outcomes = await self._ask_to_run(line.program, messages, sandbox)
        except Died as death:
            if not line.alone:
                line.alone = ALONE
                return
            if death.code != OUT_OF_TIME and not line.excused:  # somebody may have killed it
                line.excused = True
                return
            outcomes = [Outcome(Ending.FAILED, reason=DIED)]
        except BrokerError as error:
            line.fail(error)
            return
        line.alone, line.excused = max(line.alone - 1, 0), False
        line.give(outcomes)

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
