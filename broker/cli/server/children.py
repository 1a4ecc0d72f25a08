"""The broker's processes, as their parent sees them."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from broker.app.config import AppConfig
from broker.app.process_environment import environment, set_environment
from broker.cli.server.child_process import Disk, Failed, Outage, Renew, Serving, start_deaf
from broker.cli.server.ports import Ports
from broker.cli.server.worker_template import CONTEXT, start_template
from broker.core.context.storage import DiskSpace
from broker.net.tls.material import TlsMaterial
from broker.observability.metrics.book import CounterBook
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import LAYOUTS

logger = logging.getLogger(__name__)

_FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.2, 10.0  # before a child that dies young again and again is started
_LONG_SECONDS = 5.0  # of a service that was not short
_STOP_SECONDS = 10.0  # then a child is killed; the database keeps what it had
_REMIND_SECONDS = 3600.0  # of a child that cannot be started, for the same reason as before

_NO_WORKER = "No worker process of the broker serves; try again."


@dataclass(slots=True)
class _Life:
    """The life of a worker process: starting ──Serving──► serving ──► ended, or starting ──(Failed)──► ended."""

    serving_since: float | None = None
    why: str = ""  # it ended
    failed: bool = False  # by what it said itself

    def was_long(self, now: float) -> bool:
        return self.serving_since is not None and now - self.serving_since > _LONG_SECONDS


class Children:
    """The worker processes: `count` on the same listening sockets, each started again when it ends.

    As long as no worker has ever served there is nothing to keep up: when each has ended without, `given_up` is
    set, and `why` says why.  Later all are started again and again, and clients that connect while none serves get
    an error.
    """

    def __init__(self, ports: Ports, *, count: int, log: tuple[str, str]) -> None:
        self._config: AppConfig | None = None
        self._ports = ports
        self._pipes: dict[int, Connection] = {}  # to those that run, by their numbers
        self._count = count
        self._log = log
        self._disk: Disk | None = None
        self._outage = Outage("")
        self._book = CounterBook(LAYOUTS, processes=count)
        self._have_served: set[int] = set()  # the numbers of workers
        self._serving: set[int] = set()
        self._failed: set[int] = set()  # those that will not be back at once
        self._none_serves, self._some_serve = asyncio.Event(), asyncio.Event()
        self.ready = asyncio.Event()  # all have begun to serve
        self.given_up = asyncio.Event()
        self.why = ""
        self.load_seconds = self.start_seconds = 0.0  # of the slowest worker

    @asynccontextmanager
    async def running(self, config: AppConfig) -> AsyncIterator[None]:
        """Keep the children running within the block."""
        self._config = config
        tasks = [asyncio.create_task(self._keep(number)) for number in range(self._count)]
        tasks.append(asyncio.create_task(self._turn_away_while_none_serves()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def renew(self, tls: TlsMaterial) -> None:
        """New connections get it, in the workers that run and in those that will."""
        self._ports = replace(self._ports, tls=tls)
        self._send(Renew(tls))

    def report_disk(self, space: DiskSpace) -> None:
        """Sends the disk space to the running workers, and to later ones when they start."""
        self._disk = Disk(space)
        self._send(self._disk)

    def report_outage(self, why: str) -> None:
        """Sends an outage to the running workers, and to later ones when they start."""
        self._outage = Outage(why)
        self._send(self._outage)

    def _send(self, word: Renew | Disk | Outage) -> None:
        for pipe in self._pipes.values():
            with contextlib.suppress(OSError):  # it is about to be started again, and is told then
                pipe.send(word)

    async def _keep(self, number: int) -> None:
        short_lives = 0  # in a row
        said: tuple[str, float] = ("", 0.0)
        said_at = float("-inf")
        loop = asyncio.get_running_loop()
        while True:
            life = await self._run_one(number)
            if life.serving_since is None and self._give_up_after(number, life.why):
                return
            short_lives = 0 if life.was_long(loop.time()) else short_lives + 1
            delay = restart_delay(short_lives)
            if delay:
                self._failed.add(number)  # also one that serves, and soon ends, again and again
                self._report()
            is_new = said != (life.why, delay) or loop.time() - said_at > _REMIND_SECONDS
            if is_new and (self._have_served or short_lives > 1):  # else the broker ends with it, or it passes
                said, said_at = (life.why, delay), loop.time()
                level = logging.ERROR if life.failed else logging.WARNING
                when = f" in {delay:.1f} s" if delay else ""
                logger.log(level, "worker process %d %s; starting it again%s", number, life.why, when)
            await asyncio.sleep(delay)

    def _give_up_after(self, number: int, why: str) -> bool:
        self._failed.add(number)
        if not self._have_served and len(self._failed) == self._count:
            self.why = f"worker process {number} {why}"
            self.given_up.set()
        self._report()
        return self.given_up.is_set()

    async def _run_one(self, number: int) -> _Life:
        life = _Life()
        try:
            process, ours = self._begin(number)
        except OSError as error:  # no memory, no file, no process is free
            life.why = f"could not be made: {error}"
            return life
        self._pipes[number] = ours
        try:
            with contextlib.suppress(OSError):  # it has ended already
                for word in filter(None, (self._disk, self._outage)):
                    ours.send(word)
            await self._wait(process, ours, number, life)
        finally:
            del self._pipes[number]
            self._serving.discard(number)
            self._report()
            await _stop(process)
            ours.close()
        life.why = life.why or _how_it_ended(process.exitcode)
        return life

    def _begin(self, number: int) -> tuple[BaseProcess, Connection]:
        """A worker process, and the pipe to it.  Raises OSError."""
        assert self._config is not None
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(
            target=_run_worker,
            args=(self._config, self._ports, theirs, self._log, self._book, number, environment()),
            name=f"worker-{number}",
        )
        try:
            start_template()
            start_deaf(process)
        except OSError:
            ours.close()
            raise
        except EOFError as error:  # the template was killed at this moment
            ours.close()
            raise ChildProcessError("the process that workers are forked from ended") from error
        finally:
            theirs.close()
        return process, ours

    async def _wait(self, process: BaseProcess, pipe: Connection, number: int, life: _Life) -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(process.sentinel, ended.set)
        loop.add_reader(pipe.fileno(), self._hear, pipe, number, life)
        try:
            await ended.wait()
            self._hear(pipe, number, life)
        finally:
            loop.remove_reader(process.sentinel)
            loop.remove_reader(pipe.fileno())

    def _hear(self, pipe: Connection, number: int, life: _Life) -> None:
        loop = asyncio.get_running_loop()
        try:
            while pipe.poll():
                match pipe.recv():
                    case Serving(load_seconds, start_seconds):
                        self.load_seconds = max(self.load_seconds, load_seconds)
                        self.start_seconds = max(self.start_seconds, start_seconds)
                        life.serving_since = loop.time()
                        self._begins_to_serve(number)
                    case Failed(why):
                        life.why, life.failed = f"cannot start: {why}", True
        except (EOFError, OSError):
            loop.remove_reader(pipe.fileno())

    def _begins_to_serve(self, number: int) -> None:
        if number in self._failed:
            logger.info("worker process %d serves again", number)
        self._failed.discard(number)
        self._serving.add(number)
        self._have_served.add(number)
        if len(self._have_served) == self._count:
            self.ready.set()
        self._report()

    def _report(self) -> None:
        """Reports whether workers serve.

        A worker that was killed is back at once, and connections wait for it; one that cannot start is not.
        """
        none_serves = bool(self._failed) and not self._serving
        for event, is_so in ((self._none_serves, none_serves), (self._some_serve, not none_serves)):
            if is_so:
                event.set()
            else:
                event.clear()

    async def _turn_away_while_none_serves(self) -> None:
        while True:
            await self._none_serves.wait()
            async with self._ports.turning_away(_NO_WORKER, alive=False):
                await self._some_serve.wait()


def restart_delay(short_lives: int) -> float:
    """Returns the seconds before a restart.

    The first is at once: nobody should wait for a child that was killed.
    """
    if short_lives < 2:
        return 0.0
    return min(_FIRST_DELAY_SECONDS * 2.0 ** min(short_lives - 2, 10), _MAX_DELAY_SECONDS)


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        with contextlib.suppress(ValueError):  # a signal that Python has no name for
            return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"


async def _stop(process: BaseProcess) -> None:
    if process.is_alive() and process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        await asyncio.to_thread(process.join, _STOP_SECONDS)
        if process.is_alive():
            process.kill()
    await asyncio.to_thread(process.join)


def _run_worker(
    config: AppConfig,
    ports: Ports,
    pipe: Connection,
    log: tuple[str, str],
    book: CounterBook,
    number: int,
    inherited: Mapping[str, str],
) -> None:
    """Run a worker in its process, which has the modules already (worker_template.py).

    `inherited`: the parent's environment, which has changed since the template was started.
    """
    from broker.cli.server.worker_modules import LOAD_SECONDS, run_worker

    set_environment(inherited)
    run_worker(config, ports, pipe, log, Counters(book, process=number), LOAD_SECONDS)
