"""The broker's processes, as their parent sees them."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from broker.app_config import AppConfig
from broker.cli.child_process import CONTEXT, start_deaf

logger = logging.getLogger(__name__)

_FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.2, 10.0  # before a child that dies young again and again is started
_HEALTHY_SECONDS = 5.0  # of a life that was not short
_STOP_SECONDS = 10.0  # then a child is killed; the database keeps what it had


class Children:
    """`count` worker processes on one listening socket, each started again when it dies."""

    def __init__(self, config: AppConfig, listener: socket.socket, *, count: int, log_level: str) -> None:
        self._config = config
        self._listener = listener
        self._count = count
        self._log_level = log_level
        self._serving: set[int] = set()  # the numbers of those that have begun to
        self._ready = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Event]:
        """Keep the children running within the block; yields an event that is set once all serve."""
        keepers = [asyncio.create_task(self._keep(number)) for number in range(self._count)]
        try:
            yield self._ready
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _keep(self, number: int) -> None:
        short_lives = 0  # in a row
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            how: int | OSError | None
            try:
                how = await self._run_one(number)
            except OSError as error:  # no memory, no file, no process is free
                how = error
            short_lives = 0 if loop.time() - started > _HEALTHY_SECONDS else short_lives + 1
            delay = restart_delay(short_lives)
            logger.warning("worker process %d ended (%s); starting it again in %.1f s", number, how, delay)
            await asyncio.sleep(delay)

    async def _run_one(self, number: int) -> int | None:
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(
            target=_run_worker,
            args=(self._config, self._listener, theirs, self._log_level),
            name=f"worker-{number}",
        )
        start_deaf(process)
        theirs.close()
        try:
            await self._wait(process, ours, number)
        finally:
            await _stop(process)
            ours.close()
        return process.exitcode

    async def _wait(self, process: BaseProcess, pipe: Connection, number: int) -> None:
        """Until the child ends; its one word on the pipe says that it serves."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(process.sentinel, ended.set)
        loop.add_reader(pipe.fileno(), self._hear, pipe, number)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(process.sentinel)
            loop.remove_reader(pipe.fileno())

    def _hear(self, pipe: Connection, number: int) -> None:
        try:
            pipe.recv()
            self._serving.add(number)
            if len(self._serving) == self._count:
                self._ready.set()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(pipe.fileno())


def restart_delay(short_lives: int) -> float:
    """Nobody waits for a child that was killed: the first is started at once."""
    if short_lives < 2:
        return 0.0
    return min(_FIRST_DELAY_SECONDS * 2.0 ** min(short_lives - 2, 10), _MAX_DELAY_SECONDS)


async def _stop(process: BaseProcess) -> None:
    if process.is_alive() and process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        await asyncio.to_thread(process.join, _STOP_SECONDS)
        if process.is_alive():
            process.kill()
    await asyncio.to_thread(process.join)


def _run_worker(config: AppConfig, listener: socket.socket, pipe: Connection, log_level: str) -> None:
    """In the worker.  What it imports is not the parent's, which so takes a fifth of the memory."""
    from broker.cli.worker import run_worker

    run_worker(config, listener, pipe, log_level)
