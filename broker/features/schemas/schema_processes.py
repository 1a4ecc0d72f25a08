"""The processes that compile schemas, and check messages that could take long (features/schemas/checking/apart.py).

There are two, each started when it is first needed, with one job at a time.  Projects take turns in each, by the
time that their jobs take (fairness/turns.py).

* The *quick* process ends a job that needs more than QUICK_SECONDS of processor time.  Schemas that are not proven
  share one turn between all projects, so a proven schema waits for one job of theirs at most.
* The *slow* process has a lower priority, and repeats the jobs that were ended in the other.  Jobs of slow schemas
  go to it at once.

features/schemas/schema_costs.py determines which schemas are proven, and which are slow.
"""

import signal
from collections.abc import Callable
from math import inf
from time import monotonic

from broker.core.process.process_apart import Died, ProcessApart
from broker.fairness.fair_turns import Path
from broker.fairness.turn_counts import TurnCounts
from broker.fairness.turns import Turns
from broker.features.schemas.checking.apart import ANSWERS, Answer, Bounded, Check, Decode, Job, encode
from broker.features.schemas.schema_costs import SchemaCosts
from broker.observability.metrics.counters import Counters

QUICK_SECONDS = 0.5  # of processor time, for a job of the quick process
SLOW_SECONDS = 15.0  # of processor time, for a job of the slow process: 10 MB of small records take two
STUCK_SECONDS = 90.0  # after which a process that gives no answer is ended
WAIT_SECONDS = 20.0  # for a turn
_SLOW_NICENESS = 10
_OUT_OF_TIME = -signal.SIGPROF
_UNPROVEN = ""  # in place of a project: the turn that all unproven schemas share
TOO_LONG = "it takes too long, too much memory or too many levels to read"


class SchemaProcesses:
    """Owned by one process of the broker."""

    def __init__(
        self,
        *,
        slow_seconds: float = SLOW_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
        counters: Counters | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        counts = TurnCounts(counters or Counters(), "schema")
        self._quick = _SharedProcess(QUICK_SECONDS, wait_seconds, counts, niceness=0)
        self._slow = _SharedProcess(slow_seconds, wait_seconds, counts, niceness=_SLOW_NICENESS)
        self._costs = SchemaCosts()
        self._clock = clock

    async def run(self, project: str, job: Job) -> Answer:
        """The answer to a job of a project ("projects/p"); an error if the job ended its process, or took too long.

        Raises Unavailable if the process cannot be started, or if the project's turn does not come in time.
        """
        number = job.schema.number if isinstance(job, Check | Decode) else 0
        try:
            return await self._run(project, number, job)
        except Died:
            return Answer(error=TOO_LONG)

    async def _run(self, project: str, number: int, job: Job) -> Answer:
        """Raises Died, Unavailable."""
        costs = self._costs

        def is_slow() -> bool:
            return costs.is_slow(project, number, self._clock())

        if not is_slow():
            path = (project, "") if costs.is_proven(project, number) else (_UNPROVEN, project)
            try:
                answer = await self._quick.run(project, path, job, unless=is_slow)
            except _IsSlow:
                pass
            except Died as death:
                costs.learn(project, number, QUICK_SECONDS, self._clock())
                if death.code != _OUT_OF_TIME:
                    raise
            else:
                if isinstance(job, Check):  # what compiles imports a library once
                    costs.learn(project, number, answer.seconds, self._clock())
                return answer
        return await self._slow.run(project, (project, number), job)

    async def close(self) -> None:
        """End the processes."""
        await self._quick.close()
        await self._slow.close()


class _IsSlow(Exception):
    """A schema was found to be slow while a job waited for its turn."""


class _SharedProcess:
    """A process, and the turns of those who wait for it."""

    def __init__(self, job_seconds: float, wait_seconds: float, counts: TurnCounts, *, niceness: int) -> None:
        self._job_seconds = job_seconds
        self._process = ProcessApart(
            "broker.features.schemas.checking.apart", what="reads schemas", seconds=STUCK_SECONDS, niceness=niceness
        )
        self._turns = Turns(
            1,
            long_seconds=inf,
            max_wait_seconds=wait_seconds,
            refusal="Too many messages wait to be checked against schemas; try again.",
            counts=counts,
        )

    async def run(
        self, project: str, path: Path, job: Job, *, unless: Callable[[], bool] = lambda: False
    ) -> Answer:
        """The answer, unless `unless()` when the turn has come.  Raises Died, Unavailable, _IsSlow."""
        async with self._turns.of(project, path):
            if unless():
                raise _IsSlow
            try:
                return ANSWERS.decode(await self._process.ask(encode(Bounded(job, self._job_seconds))))
            except Died:
                await self._process.start()
                raise

    async def close(self) -> None:
        await self._process.end()
