"""The process that compiles schemas and reads messages that could cost much (payload_schemas/apart.py).

It is started when it is first needed, does one job at a time, and is ended when a job takes too long or the broker
stops.
"""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress

from broker.domain.errors import Unavailable
from broker.payload_schemas.apart import ANSWERS, LENGTH, Answer, Job, frame

JOB_SECONDS = 15.0  # 10 MB of small records take two, on a machine that does nothing else
TOO_LONG = "it takes too long, too much memory or too many levels to read"


class SchemaProcess:
    """One for a process of the broker."""

    def __init__(self, *, job_seconds: float = JOB_SECONDS) -> None:
        self._job_seconds = job_seconds
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def run(self, job: Job) -> Answer:
        """Its answer; an error where the job has ended the process, or would not end.

        Raises Unavailable if the process cannot be started.
        """
        async with self._turn:
            process = await self._started()
            try:
                async with asyncio.timeout(self._job_seconds):
                    return await _ask(process, job)
            except (TimeoutError, OSError, EOFError):
                await self._end()
                return Answer(error=TOO_LONG)
            except asyncio.CancelledError:
                await self._end()  # it would answer the next job with this one's answer
                raise

    async def close(self) -> None:
        """End it."""
        async with self._turn:
            await self._end()

    async def _started(self) -> Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "broker.payload_schemas.apart", stdin=PIPE, stdout=PIPE, stderr=DEVNULL
            )
        except OSError as error:
            raise Unavailable(f"The process that reads schemas cannot be started ({error.strerror}).") from error
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()


async def _ask(process: Process, job: Job) -> Answer:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(frame(job))
    await process.stdin.drain()
    header = await process.stdout.readexactly(LENGTH.size)
    return ANSWERS.decode(await process.stdout.readexactly(LENGTH.unpack(header)[0]))
