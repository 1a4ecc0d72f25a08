"""A pool of connections for the hot statements."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from time import perf_counter
from weakref import WeakSet

import psycopg

from broker.db.driver.hot_connection import UNANSWERED_SECONDS, HotConnection
from broker.db.driver.postgres_errors import PoolExhausted, is_full
from broker.observability.log import reason

WAIT_SECONDS = 5.0  # for a connection, when all are in use
_PROBE_SECONDS = 0.25
_FULL_SECONDS = 10.0  # after which a server without free connections is asked again for this one


class HotPool:
    """A pool of at most `size` connections, made when they are needed; the one used last is the first to be used.

    One that has become large is closed when it is given back.

    near ──none can be made, or a server does not answer──► away ──a probe connects──► near

    While the server is away nobody waits: whoever finds no idle connection is refused at once, and one task tries
    to connect, a few times a second.

    A server that has no connection left is not away as long as the pool has connections: for a while the pool makes
    do with those.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[HotConnection]],
        *,
        size: int,
        went: Callable[[str], None] = lambda _: None,
        came: Callable[[], None] = lambda: None,
        waited: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`went(reason)` and `came()`: the server is away, and back.  `waited(seconds)`: a connection came free."""
        self._waited = waited
        self._connect = connect
        self._went, self._came = went, came
        self._free = size  # how many more may be in use; 0 while tasks wait
        self._waiting: deque[asyncio.Future[None]] = deque()  # tasks that wait for a connection to be returned
        self._idle: list[HotConnection] = []
        self._made: WeakSet[HotConnection] = WeakSet()
        self._closed = False
        self._why_away = ""
        self._probe: asyncio.Task[None] | None = None  # while the server is away

    @property
    def away(self) -> bool:
        """Whether no connection can be made, or the server does not answer."""
        return self._probe is not None

    async def acquire(self, following: HotConnection | None = None) -> HotConnection:
        """A connection, to be given back by `release`.

        `following` is one that other tasks hold, to be used beside them: the last that leaves it gives it back.
        Raises psycopg.Error: none can be made, or (PoolExhausted) none was given back in time.
        """
        while following is None:
            if self._free:
                self._free -= 1
            else:
                await self._wait()
            try:
                following = self._take() or await self._new()
            except BaseException as error:
                if not (is_full(error) and self.has_some()):
                    self._leave()
                    raise
                asyncio.get_running_loop().call_later(_FULL_SECONDS, self._leave)
        following.users += 1
        return following

    async def release(self, connection: HotConnection) -> None:
        """Gives a connection back; one that is broken is not used again."""
        connection.users -= 1
        if not connection.users:
            self._leave()
            if connection.failed or connection.bulky or connection.in_transaction or self._closed:
                await self._dispose_of(connection)
            else:
                self._idle.append(connection)

    async def _wait(self) -> None:
        began = perf_counter()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._until_free()
            self._waited(perf_counter() - began)
        except TimeoutError:
            raise PoolExhausted(f"no connection was free for {WAIT_SECONDS:.0f} s") from None

    async def _until_free(self) -> None:
        freed = asyncio.get_running_loop().create_future()
        self._waiting.append(freed)
        try:
            await freed
        except asyncio.CancelledError:
            if freed.done() and not freed.cancelled():  # both at once
                self._leave()
            raise

    def _leave(self) -> None:
        """Gives up a use of the pool: to the request that has waited longest, if there is one."""
        while self._waiting:
            freed = self._waiting.popleft()
            if not freed.done():  # the waiting task was cancelled
                freed.set_result(None)
                return
        self._free += 1

    def refuse_if_away(self) -> None:
        """Raises psycopg.OperationalError, with the reason, while the server is away."""
        if self.away:
            raise psycopg.OperationalError(f"the server is away: {self._why_away}")

    def has_some(self) -> bool:
        """Whether any connection of the pool still works."""
        return any(not connection.failed for connection in self._made)

    async def _new(self) -> HotConnection:
        self.refuse_if_away()
        try:
            connection = await self._connect()
        except psycopg.Error as error:
            if not (is_full(error) and self.has_some()):
                self._check_server(reason(error))
            raise
        self._made.add(connection)
        return connection

    async def _dispose_of(self, connection: HotConnection) -> None:
        if connection.gave_up:
            self._check_server(f"it did not answer for {UNANSWERED_SECONDS:.0f} s")
            await self._close_idle()  # otherwise each would fail only when it is used
        await connection.close()

    def _take(self) -> HotConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.failed:
                return connection
        return None

    def _check_server(self, why: str) -> None:
        """Begins to connect until that works, since the server is away."""
        if self._probe is None and not self._closed:
            self._report_away(why)
            self._probe = asyncio.get_running_loop().create_task(self._connect_again(), name="reach the database")

    def _report_away(self, why: str) -> None:
        self._why_away = why
        self._went(why)

    async def _connect_again(self) -> None:
        try:
            while True:
                await asyncio.sleep(_PROBE_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311
                try:
                    await self._connect_one()
                except psycopg.Error as error:
                    self._report_away(reason(error))
                else:
                    self._came()
                    return
        finally:
            self._probe = None

    async def _connect_one(self) -> None:
        if self._free:
            self._free -= 1
        else:
            await self._until_free()
        try:
            connection = await self._connect()
            self._made.add(connection)
            self._idle.append(connection)
        finally:
            self._leave()

    async def close(self) -> None:
        """Close the idle connections now and the others when they are given back."""
        self._closed = True
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)
        await self._close_idle()

    async def _close_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()
