"""A helper process for work that could take too much time or memory.  It is ended when a request to it fails."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress

from broker.core.process.frames import LENGTH, frame
from broker.model.errors import Unavailable, os_reason

ENDING_SECONDS = 2.0  # for the process to end after its pipe was closed


class Died(Exception):
    """The process ended, or took too long and was ended, before it answered.

    `code`: its exit code, as of subprocess.
    """

    def __init__(self, code: int | None = None) -> None:
        super().__init__(code)
        self.code = code


class ProcessApart:
    """`python -m module`, started when it is asked and does not run.  It is asked one thing at a time."""

    def __init__(self, module: str, *, what: str, seconds: float, bare: bool = False, niceness: int = 0) -> None:
        """`what` it does, for errors ("runs transforms"); `seconds` for an answer.  `bare`: it is not to know the
        broker's environment.  `niceness`: beyond 0, it gets less of the processors than the broker.
        """
        self._module = module
        self._what = what
        self._seconds = seconds
        self._niceness = niceness
        self._environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TZ": "UTC"} if bare else None
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """None: it does not run."""
        return self._process.pid if self.runs and self._process is not None else None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def ask(self, body: bytes) -> bytes:
        """Raises Died, Unavailable (it cannot be started)."""
        process = await self._started()
        try:
            async with asyncio.timeout(self._seconds):
                return await _answer(process, body)
        except (TimeoutError, OSError, EOFError) as error:
            if not isinstance(error, TimeoutError):
                await _ended_by_itself(process)
            await self.end()
            raise Died(process.returncode) from error
        except asyncio.CancelledError:
            await self.end()  # otherwise it would return this answer for the next request
            raise

    async def start(self) -> None:
        """Starts the process if it does not run, so that the next request waits for less.  Raises Unavailable."""
        await self._started()

    async def end(self) -> None:
        """Ends the process.  The next request starts it again."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()

    async def _started(self) -> Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env=self._environment,
            )
        except OSError as error:
            reason = f"The process that {self._what} cannot be started ({os_reason(error)})."
            raise Unavailable(reason) from error
        if self._niceness:
            niceness = os.getpriority(os.PRIO_PROCESS, 0) + self._niceness
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)
        return self._process


async def _ended_by_itself(process: Process) -> None:
    """Waits until a process ends whose pipe is closed.

    If it is killed before that is known, the killer learns its exit code from whichever call waits for it.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDING_SECONDS):
            await process.wait()


async def _answer(process: Process, body: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(frame(body))
    await process.stdin.drain()
    header = await process.stdout.readexactly(LENGTH.size)
    return await process.stdout.readexactly(LENGTH.unpack(header)[0])
