"""Load processes, as their parent sees them."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from benchmarks.load_spec import Result, Spec
from benchmarks.wire import LoadFailed

REPOSITORY = Path(__file__).parents[1]
_GRACE_SECONDS = 90.0  # past a load's own time: its last answers, each bounded by the socket's timeout


def run_loads(specs: Sequence[Spec]) -> list[Result]:
    """Start a process per spec, let all begin at one moment, wait for all.

    Returns their results in the order of `specs`.  Raises LoadFailed if one of them could not do its work.
    """
    with _started(specs) as processes:
        for process in processes:
            _wait_until_ready(process)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        longest = max(max(spec.seconds, spec.limit_seconds, 0.0 if spec.seconds else 600.0) for spec in specs)
        return [_result(process, longest + _GRACE_SECONDS) for process in processes]


@contextmanager
def beside(spec: Spec) -> Iterator[None]:
    """Run a load that lasts until its stdin ends, as long as the block does.  Raises LoadFailed, at its end."""
    with _started([spec]) as [process]:
        _wait_until_ready(process)
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        yield
        _result(process, _GRACE_SECONDS)  # closes its stdin


@contextmanager
def program_beside(name: str, module: str, *arguments: str, prefix: Sequence[str] = ()) -> Iterator[None]:
    """Run a module as a program for as long as the block runs.  The block begins once it has printed "ready".

    `name`: the program's name in errors.  `prefix`: a command that runs it.  Raises LoadFailed.
    """
    command = [*prefix, sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise LoadFailed(f"{name} did not start")
            yield
            if process.poll() is not None:
                raise LoadFailed(f"{name} ended during the measurement")
        finally:
            process.kill()


@contextmanager
def _started(specs: Sequence[Spec]) -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    try:
        for spec in specs:
            command = [sys.executable, "-m", "benchmarks.load", json.dumps(asdict(spec))]
            processes.append(
                subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        yield processes
    finally:
        for process in processes:
            process.kill()
            with contextlib.suppress(OSError):  # a start signal that it no longer reads
                process.communicate()


def _wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    if line != "ready\n":
        error = json.loads(line)["error"] if line else "a load process ended at its start"
        raise LoadFailed(error)


def _result(process: subprocess.Popen[str], timeout: float) -> Result:
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise LoadFailed(f"a load process did not end within {timeout:.0f} s") from error
    if not output:
        raise LoadFailed(f"a load process ended without a result (exit code {process.returncode})")
    result = Result(**json.loads(output))
    if result.error:
        raise LoadFailed(result.error)
    return result


class Throughput(NamedTuple):
    """What some load processes did together."""

    per_second: float
    messages: int


def throughput(results: Sequence[Result]) -> Throughput:
    """Messages, and messages a second from the first start to the last answer.  Raises LoadFailed if none."""
    seconds = max(result.ended for result in results) - min(result.started for result in results)
    messages = sum(result.messages for result in results)
    if not messages or seconds <= 0:
        raise LoadFailed("no message came through")
    return Throughput(messages / seconds, messages)
