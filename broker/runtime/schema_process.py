"""The process that compiles schemas and reads messages that could cost much (payload_schemas/apart.py).

It is started when it is first needed, does one job at a time, and is ended when a job takes too long or the broker
stops.
"""

import asyncio

from broker.payload_schemas.apart import ANSWERS, Answer, Job, encode
from broker.runtime.process_apart import Died, ProcessApart

JOB_SECONDS = 15.0  # 10 MB of small records take two, on a machine that does nothing else
TOO_LONG = "it takes too long, too much memory or too many levels to read"


class SchemaProcess:
    """One for a process of the broker."""

    def __init__(self, *, job_seconds: float = JOB_SECONDS) -> None:
        self._process = ProcessApart("broker.payload_schemas.apart", what="reads schemas", seconds=job_seconds)
        self._turn = asyncio.Lock()

    async def run(self, job: Job) -> Answer:
        """Its answer; an error where the job has ended the process, or would not end.

        Raises Unavailable if the process cannot be started.
        """
        async with self._turn:
            try:
                return ANSWERS.decode(await self._process.ask(encode(job)))
            except Died:
                return Answer(error=TOO_LONG)

    async def close(self) -> None:
        """End it."""
        async with self._turn:
            await self._process.end()
