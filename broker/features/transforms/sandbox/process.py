"""The process in which transforms run: `python -m broker.features.transforms.sandbox.process`.  It may end at any
time.

It reads jobs from its input, writes the outcomes of each, and ends with its input.  Its memory, and its processor
time for a message, are limited, whatever code it gets; it opens and writes no file.  Its parent limits the elapsed
time, and passes no secrets to it.
"""

import resource
import signal
import sys
from time import perf_counter

import msgspec

from broker.core.process.frames import frame, unframed
from broker.features.transforms.sandbox import compression
from broker.features.transforms.sandbox.fields import FieldEdits
from broker.features.transforms.sandbox.javascript import Function, Refused
from broker.features.transforms.sandbox.jobs import JOBS, Check, Ending, Forget, Job, Message, Outcome, Run, encode
from broker.model.errors import InvalidArgument
from broker.model.field_transform import Fields
from broker.model.publish_limits import check_returned
from broker.model.transforms import Compression, Transforms

MAX_MEMORY = 1_200_000_000  # of address space
END_SECONDS = 2.0  # of the processor, for one message: of what QuickJS's own bounds do not end
RUN_SECONDS = 0.1  # after which a job is answered with what is done
RUN_BYTES = 8_000_000  # and of what is made

Step = Function | Compression | FieldEdits
_attributes = msgspec.json.Decoder(dict[str, str]).decode


def _steps(transforms: Transforms) -> list[Step]:
    """Raises Refused."""
    steps: list[Step] = []
    for index, transform in enumerate(transforms):
        if transform.disabled:
            continue
        action = transform.action
        try:
            if isinstance(action, Fields):
                steps.append(FieldEdits(action))
            else:
                steps.append(action if isinstance(action, Compression) else Function(action))
        except Refused as error:
            raise Refused(f"[{index}].javascriptUdf.code: {error}") from error
    return steps


class Worker:
    """Programs that it knows, by their names."""

    def __init__(self) -> None:
        self._programs: dict[str, list[Step] | str] = {}  # or why there is none

    def answer(self, job: Job) -> list[Outcome]:
        if isinstance(job, Run):
            return self._run(job)
        if isinstance(job, Check):
            return _check(job)
        assert isinstance(job, Forget)
        for program in job.programs:
            self._programs.pop(program, None)
        return []

    def _run(self, job: Run) -> list[Outcome]:
        _watch()
        if job.transforms is not None:
            try:
                self._programs[job.program] = _steps(job.transforms)
            except Refused as error:
                self._programs[job.program] = str(error)
        steps = self._programs[job.program]
        if isinstance(steps, str):
            return [Outcome(Ending.FAILED, reason=steps)] * len(job.messages)
        outcomes: list[Outcome] = []
        until, size = perf_counter() + RUN_SECONDS, 0
        for message in job.messages:
            _watch()
            outcome = _through(steps, message)
            outcomes.append(outcome)
            size += len(outcome.data) + len(outcome.attributes)
            if size > RUN_BYTES or perf_counter() > until:
                break
        for step in steps:
            if isinstance(step, Function):
                step.rest()
        return outcomes


def _watch() -> None:
    """Limits the processor time from now on: the process ends when it has used that."""
    signal.setitimer(signal.ITIMER_PROF, END_SECONDS)


def _check(job: Check) -> list[Outcome]:
    _watch()
    try:
        _steps(job.transforms)
    except Refused as error:
        return [Outcome(Ending.FAILED, reason=f"{job.where}{error}")]
    return []


def _through(steps: list[Step], message: Message) -> Outcome:
    had = message.attributes
    outcome = Outcome(Ending.KEPT, message.data, had)
    try:
        for step in steps:
            message.data, message.attributes = outcome.data, outcome.attributes
            outcome = compression.apply(step, message) if isinstance(step, Compression) else step.apply(message)
            if outcome.ending is not Ending.KEPT:
                break
            _check_limits(outcome, had)
    except InvalidArgument as error:
        return Outcome(Ending.FAILED, reason=f"what it returns breaks a limit: {error.message.rstrip('.')}")
    except MemoryError:
        return Outcome(Ending.FAILED, reason="it takes too much memory")
    except Refused as error:  # its world had to be made anew, which went well before
        return Outcome(Ending.FAILED, reason=str(error))
    return outcome


def _check_limits(outcome: Outcome, had: str) -> None:
    """`had`: the attributes of the message before.  Raises InvalidArgument."""
    if outcome.attributes != had:
        check_returned(outcome.data, _attributes(outcome.attributes), had=_attributes(had))
    elif not outcome.data and had == "{}":
        check_returned(b"", {}, had={})


def confine() -> None:
    """Confines this process, which cannot be undone."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, which the parent hears as well
    for limit, most in (
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 3),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(limit, (most, most))


def main() -> None:
    confine()
    worker = Worker()
    while body := unframed(sys.stdin.buffer.read):
        outcomes = worker.answer(JOBS.decode(body))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(frame(encode(outcomes)))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
