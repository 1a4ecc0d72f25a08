"""The database stops, dies, refuses, or makes others wait.

No fault provokes serialization errors (40001): all transactions of the broker are READ COMMITTED, which has none.
Deadlocks (40P01) are treated as they would be.
"""

import asyncio
import contextlib
import signal

import psutil
import psycopg

from tests.faults.world import Session, World

_OF_BROKERS = "application_name = 'broker' AND datname = current_database() AND pid <> pg_backend_pid()"
_A_SESSION = f"SELECT pid FROM pg_stat_activity WHERE {_OF_BROKERS} ORDER BY random() LIMIT 1"
_AT_ONCE = 10  # so many connections are made at a time
_LOCKED = 200  # rows of a shard, at the most
_BUSY_SESSIONS = f"SELECT pid FROM pg_stat_activity WHERE {_OF_BROKERS} AND state = 'active'"


class StopPostgres:
    """SIGSTOP of the postmaster and of every backend."""

    name = "stop postgres"

    def __init__(self) -> None:
        self._stopped: list[psutil.Process] = []

    def choose(self, world: World) -> psutil.Process:
        """A postmaster."""
        return _postmaster(world)

    async def inject(self, world: World) -> None:
        postmaster = self.choose(world)
        postmaster.suspend()
        self._stopped.append(postmaster)
        for backend in postmaster.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                backend.suspend()
                self._stopped.append(backend)

    async def heal(self, world: World) -> None:
        for process in reversed(self._stopped):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


class CrashPostgres:
    """An immediate shutdown: no checkpoint, so it recovers at its next start, which its keeper sees to."""

    name = "crash postgres"

    async def inject(self, world: World) -> None:
        postmaster = _postmaster(world)
        postmaster.send_signal(signal.SIGQUIT)
        await asyncio.to_thread(psutil.wait_procs, [postmaster], 20)

    async def heal(self, world: World) -> None:
        """It heals by itself."""


def _postmaster(world: World) -> psutil.Process:
    postmaster = world.postmaster()
    if postmaster is None:
        raise psutil.NoSuchProcess(0)
    return postmaster


class _Repeated:
    """Does something again and again until it is healed, in a session of its own."""

    name: str

    def __init__(self) -> None:
        self._healed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def inject(self, world: World) -> None:
        self._task = asyncio.create_task(self._repeat(world))

    async def heal(self, world: World) -> None:
        self._healed.set()
        if self._task is not None:
            await self._task

    async def once(self, session: Session, world: World) -> float:
        """Do it; returns the seconds to the next time."""
        raise NotImplementedError

    async def _repeat(self, world: World) -> None:
        while not self._healed.is_set():
            with contextlib.suppress(psycopg.Error):
                async with world.session() as session:
                    while not self._healed.is_set():
                        await self._pause(await self.once(session, world))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._healed.wait(), seconds)


class TerminateSessions(_Repeated):
    """pg_terminate_backend, of one session of the brokers after the other."""

    name = "terminate sessions"

    async def once(self, session: Session, world: World) -> float:
        await session.execute(f"SELECT pg_terminate_backend(pid) FROM ({_A_SESSION}) AS s".encode())
        return world.dice.uniform(0.05, 0.8)


class CancelStatements(_Repeated):
    """Statements end as statement_timeout would end them."""

    name = "cancel statements"

    async def once(self, session: Session, world: World) -> float:
        await session.execute(f"SELECT pg_cancel_backend(pid) FROM ({_BUSY_SESSIONS}) AS s".encode())
        return world.dice.uniform(0.01, 0.1)


class Deadlocks(_Repeated):
    """Locks rows that a claim or the dead-letter forwarder locks, in the other order.

    This session waits longer than the broker's before it looks for a deadlock, so the broker's is the victim.
    """

    name = "deadlocks"

    async def once(self, session: Session, world: World) -> float:
        async with session.transaction(force_rollback=True):
            await session.execute("SET LOCAL citus.propagate_set_commands = 'local'")  # says nothing elsewhere
            await session.execute("SET LOCAL deadlock_timeout = '10s'")
            for table in (world.dice.choice(("delivery_attempts", "shards")), "cursors"):
                await _lock_rows(session, table, "DESC")
                await asyncio.sleep(world.dice.uniform(0.02, 0.1))
        return world.dice.uniform(0.1, 0.5)


class ExhaustConnections(_Repeated):
    """Takes every connection that PostgreSQL has, and ends sessions of the brokers, which find no other.

    All are given back when it is healed.
    """

    name = "exhaust connections"

    def __init__(self) -> None:
        super().__init__()
        self._taken: list[Session] = []

    async def heal(self, world: World) -> None:
        await super().heal(world)
        for session in self._taken:
            await session.close()

    async def once(self, session: Session, world: World) -> float:
        await session.execute(f"SELECT pg_terminate_backend(pid) FROM ({_A_SESSION}) AS s".encode())
        got = _AT_ONCE
        while got == _AT_ONCE and not self._healed.is_set():
            tried = await asyncio.gather(*(world.connect(tries=1) for _ in range(_AT_ONCE)), return_exceptions=True)
            new = [one for one in tried if isinstance(one, psycopg.AsyncConnection)]
            self._taken += new
            got = len(new)
        return world.dice.uniform(0.05, 0.3)


class _Session:
    """Something that a session holds until it is healed."""

    name: str

    def __init__(self) -> None:
        self._session: Session | None = None

    async def hold(self, session: Session, world: World) -> None:
        raise NotImplementedError

    async def inject(self, world: World) -> None:
        self._session = await world.connect()
        await self.hold(self._session, world)

    async def heal(self, world: World) -> None:
        if self._session is not None:
            await self._session.close()


class LockRowsForLong(_Session):
    """Holds the shard heads or the cursors for longer than a statement may take (8 s)."""

    name = "lock rows for long"

    async def hold(self, session: Session, world: World) -> None:
        await session.execute("BEGIN")
        await _lock_rows(session, world.dice.choice(("shards", "cursors")), "ASC")


async def _lock_rows(session: Session, table: str, order: str) -> None:
    """Some of each shard, one shard after the other: where these lie on nodes no statement locks several."""
    shard_ids = await session.execute(f"SELECT DISTINCT shard_id FROM {table} ORDER BY 1 {order}".encode())
    key = {"delivery_attempts": "attempt_id", "cursors": "subscription_id", "shards": "shard_id"}[table]
    query = f"SELECT 1 FROM {table} WHERE shard_id = %s ORDER BY {key} {order} LIMIT {_LOCKED} FOR UPDATE"
    for shard_id in await shard_ids.fetchall():
        await session.execute(query.encode(), shard_id)


class HoldVacuumBack(_Repeated):
    """A transaction with an old snapshot; another one where a fault ends its session."""

    name = "hold vacuum back"

    async def once(self, session: Session, world: World) -> float:
        async with session.transaction():
            await session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await session.execute("SELECT count(*) FROM shards")
            while not self._healed.is_set():
                await session.execute("SELECT 1")  # notices its end
                await self._pause(0.5)
        return 0.0
