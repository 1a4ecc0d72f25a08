"""Connections, transactions, and the meaning of failed statements.

There are two pools: `hot()` has connections for hot statements (db/driver/hot_connection.py), and SQLAlchemy's
engine has those for all others: for a `transaction()`, or for single statements (`connection()`).
docs/decisions/0019 has the reasons.  A third pool, `at_any_node()`, equals `hot()` unless other nodes of a cluster
are configured for statements that concern one shard and not the catalog (docs/decisions/0054).  postgres_errors.py
translates the errors of all three.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
from psycopg import errors as pg
from sqlalchemy import event
from sqlalchemy.engine.interfaces import AdaptedConnection
from sqlalchemy.exc import DBAPIError, InvalidatePoolError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from broker.db.citus.engine import find_engine, is_lost_node
from broker.db.database_url import DEFAULT_SCHEMA
from broker.db.driver.connection_parameters import connection_parameters
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.hot_pool import HotPool
from broker.db.driver.node_pools import NodePools
from broker.db.driver.patient_connection import PATIENCE_SECONDS, PatientConnection
from broker.db.driver.postgres_errors import PoolExhausted, is_full, translate, translate_errors
from broker.db.driver.shard_nodes import ShardNodes, groups_of_shards
from broker.db.driver.statements import Statement
from broker.model.errors import Internal, Unimplemented
from broker.observability.log import reason
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import CONNECTION_WAITS, ROUND_TRIPS
from broker.observability.state_changes import StateChanges
from broker.observability.timing import timed

logger = logging.getLogger(__name__)

Connection = psycopg.AsyncConnection[Any]
ResourceConnection = AsyncConnection  # for resources

_POOL_WAIT_SECONDS = 5.0  # for a connection of a pool whose connections are all in use

# The key of StateChanges for an absent database.
DATABASE = ("databases", "")
NODES = ("databases", "nodes")  # those of the hot URL

# Conditions to report besides an absence: they pass without intervention, and may recur.
_WORRIES: tuple[tuple[tuple[type[Exception], ...], str, str], ...] = (
    ((pg.DiskFull,), "full", "the database has no room left"),
    ((PoolExhausted, NoConnectionFree), "connections", "no connection to the database is free"),
    ((pg.ReadOnlySqlTransaction,), "read-only", "the database is a standby, or takes no changes"),
    ((pg.QueryCanceled,), "slow", "the database takes too long for statements"),
)

_NOW = Statement(b"now", b"SELECT clock_timestamp()")

# The settings of all sessions of a pool, besides those of every session (db/driver/connection_parameters.py).
_POOLED = {
    "statement_timeout": "30s",  # a stuck statement must not hold a cursor for ever
    "idle_in_transaction_session_timeout": "30s",  # nor may a broker process that stopped within a claim
    "idle_session_timeout": "0",
}

# Hot statements read hot tables by index only.  A plan that is made while a partition is empty would scan it for as
# long as the plan lives, and lose the order of the reads.
#
# Nor may a plan depend on statistics from before a burst of rows: a generic plan is made once, for any parameters,
# and tests/query_plans checks its choice of indexes.  A custom plan searched for held ordering keys in the index of
# due times for as long as the statistics showed none: 150 ms a pull instead of 18.
#
# A hot statement that takes long waits for a lock, or for a disk that hangs.  It is cancelled before the connection
# is closed (hot_connection.UNANSWERED_SECONDS), so that its outcome is known.
HOT = _POOLED | {
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": "8s",
}

# Other statements are sometimes cancelled, which closes the connection: the server then ends the statement soon,
# and releases its locks.
_NOT_HOT = _POOLED | {"client_connection_check_interval": "2s"}


class Hot:
    """`async with database.hot() as connection`.  A class, for generators would cost a tenth of a lone publish."""

    __slots__ = ("_connection", "_following", "_note", "_pool")

    def __init__(
        self, pool: HotPool, following: HotConnection | None, note: Callable[[BaseException], None]
    ) -> None:
        self._pool = pool
        self._following = following
        self._note = note

    async def __aenter__(self) -> HotConnection:
        try:
            self._connection = await self._pool.acquire(self._following)
        except psycopg.Error as error:
            self._note(error)
            raise translate(error) from error
        return self._connection

    async def __aexit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        try:
            await self._pool.release(self._connection)
        except (psycopg.Error, OSError) as failure:  # the outcome of the block counts, and it may be committed
            logger.debug("a connection could not be given back: %s", failure)
        if isinstance(error, psycopg.Error):
            self._note(error)
            raise translate(error) from error


class Database:
    """A PostgreSQL database.  Close it after use."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        hot_url: str = "",
        pool_size: int = 8,
        patience_seconds: float = PATIENCE_SECONDS,
        states: StateChanges | None = None,
        counters: Counters | None = None,
        whole_pipelines: bool | None = None,
    ) -> None:
        """`schema` has the broker's tables; `hot_url`: of nodes that have them too, for `at_any_node()`;
        `patience_seconds`: after which a statement that is not hot has no answer any more; `states` is told whether
        the database is away, and what else goes wrong with it; `whole_pipelines`: whether a pipeline without BEGIN
        is one transaction there (None: each server is asked).

        Raises ValueError for a URL that cannot be used.
        """
        self._states = states or StateChanges()
        counts = (counters or Counters()).process
        self.url, self.schema, self._took = url, schema, ROUND_TRIPS.observer(counts)
        self._parameters = connection_parameters(url, schema=schema, settings=_NOT_HOT)
        self._patience_seconds, self._whole_pipelines = patience_seconds, whole_pipelines
        shared: dict[str, Any] = {"size": pool_size, "waited": CONNECTION_WAITS.observer(counts)}
        to_it = partial(self._hot_connection, connection_parameters(url, schema=schema, settings=HOT))
        self._hot_pool = HotPool(to_it, went=self.went_away, came=self.came_back, **shared)
        self._nodes: NodePools | None = None
        if hot_url:
            to_nodes = connection_parameters(hot_url, schema=schema, settings=HOT)
            self._nodes = self._pools_of_nodes(to_nodes, shared)
        self._engine = create_async_engine(
            "postgresql+psycopg://",
            pool_size=min(4, pool_size),
            max_overflow=4,
            pool_timeout=_POOL_WAIT_SECONDS,
            async_creator=self._connect,
        )
        event.listen(self._engine.sync_engine, "checkout", _check)

    def _pools_of_nodes(self, parameters: Mapping[str, Any], shared: Mapping[str, Any]) -> NodePools:
        shard_nodes = ShardNodes(self._groups_of_shards)
        went, came = self._nodes_went_away, self._nodes_came_back
        return NodePools(parameters, self._node_connection, shard_nodes, went=went, came=came, **shared)

    async def close(self) -> None:
        await self._hot_pool.close()
        if self._nodes is not None:
            await self._nodes.close()
        await self._engine.dispose()

    def hot(self, following: HotConnection | None = None) -> Hot:
        """A connection for hot statements; `following`: that one, beside the tasks that hold it (HotPool).

        Raises a BrokerError for whatever goes wrong in the block on PostgreSQL's side.
        """
        return Hot(self._hot_pool, following, self._note)

    def at_any_node(self, shard_id: int | None = None, following: HotConnection | None = None) -> Hot:
        """The same for statements about one shard, that tell the journal nothing and read no catalog.

        `shard_id`: which shard; None: several, each by itself.
        """
        pool = self._hot_pool if self._nodes is None else self._nodes.pool(shard_id, following)
        return Hot(pool, following, self._note)

    async def _groups_of_shards(self, shard_ids: Collection[int]) -> Mapping[int, int]:
        async with self.hot() as connection:
            return await groups_of_shards(connection, shard_ids)

    async def _node_connection(self, parameters: Mapping[str, Any]) -> HotConnection:
        """Connects to one of the nodes that are named."""
        connection = await self._hot_connection(parameters, gives_numbers=False)
        if not connection.is_distributed:
            await connection.close()
            raise psycopg.OperationalError("it is no node that has the broker's tables distributed")
        return connection

    async def _hot_connection(self, parameters: Mapping[str, Any], *, gives_numbers: bool = True) -> HotConnection:
        connection = await PatientConnection.connect(autocommit=True, **parameters)
        engine = await find_engine(connection)
        whole = engine.whole_pipelines if self._whole_pipelines is None else self._whole_pipelines
        for name, value in engine.hot_settings.items():
            await connection.execute(b"SELECT set_config(%s, %s, false)", [name, value])
        return HotConnection(
            connection,
            took=self._took,
            whole_pipelines=whole,
            is_distributed=engine.is_distributed,
            say_two_phases=engine.say_two_phases,
            gives_numbers=gives_numbers,
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A psycopg connection in autocommit mode, for statements that are not hot.

        Raises a BrokerError for whatever goes wrong in the block on PostgreSQL's side.
        """
        async with self._from_engine(self._engine.connect()) as connection:
            driver = await driver_of(connection)
            try:
                # SQLAlchemy's isolation level AUTOCOMMIT would set this before it has handed the connection out: a
                # task that is cancelled meanwhile would not give it back.
                await driver.set_autocommit(True)
                yield driver
            finally:
                if driver.closed:
                    await connection.invalidate()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """An SQLAlchemy transaction for resources; commits at the end of the block."""
        async with self._from_engine(self._engine.begin()) as connection:
            yield connection

    @asynccontextmanager
    async def _from_engine(
        self, connecting: AbstractAsyncContextManager[AsyncConnection]
    ) -> AsyncIterator[AsyncConnection]:
        with self._noted_errors():
            self._hot_pool.refuse_if_away()  # one task then polls the server; no other task waits for it
            async with AsyncExitStack() as stack:
                try:
                    with timed("turns"):
                        connection = await stack.enter_async_context(connecting)
                except InvalidRequestError as error:  # the first connection was lost, and so was the next
                    raise psycopg.OperationalError("connections are lost as soon as they are made") from error
                with timed("database"):
                    yield connection

    def went_away(self, why: str) -> None:
        """Records that the database cannot be reached, or does not answer."""
        self._states.begins(*DATABASE, "the database is away", why)

    def came_back(self) -> None:
        """Records that the database can be reached again."""
        self._states.ends(*DATABASE, "the database is back")

    @property
    def nodes_are_away(self) -> bool:
        """None of those of `hot_url` can be reached, though the database can."""
        return self._nodes is not None and self._nodes.away and not self._hot_pool.away

    def _nodes_went_away(self, why: str) -> None:
        self._states.begins(*NODES, "the nodes for hot statements are away", why)

    def _nodes_came_back(self) -> None:
        self._states.ends(*NODES, "the nodes for hot statements are back")

    @contextmanager
    def _noted_errors(self) -> Iterator[None]:
        with translate_errors():
            try:
                yield
            except (psycopg.Error, NoConnectionFree, DBAPIError) as error:
                self._note(error)
                raise

    def _note(self, error: BaseException) -> None:
        """Tell the operator what a caller's error does not: why, and that it goes on."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        if self._hot_pool.away or self.nodes_are_away:
            return  # which was reported before
        if cause is not None and is_lost_node(cause):
            self._states.happens("database troubles", "node", "a node of the database is away", reason(cause))
            return
        if cause is not None and is_full(cause):
            what = "the database has no connection left"
            self._states.happens("database troubles", "connections", what, reason(cause))
            return
        for kinds, name, what in _WORRIES:
            if isinstance(cause, kinds):
                self._states.happens("database troubles", name, what, reason(cause))
                return
        if isinstance(cause, psycopg.Error) and isinstance(meaning := translate(cause), Internal | Unimplemented):
            name = cause.sqlstate or type(cause).__name__
            what = f"the database refuses a statement of the broker ({name})"
            level = logging.ERROR if isinstance(meaning, Internal) else logging.WARNING
            self._states.happens("database troubles", name, what, reason(cause), level=level)

    async def dedicated_connection(self) -> PatientConnection:
        """A connection outside the pool, in autocommit mode: the caller owns and closes it."""
        with translate_errors():
            return await self._connect(autocommit=True)

    async def _connect(self, *, autocommit: bool = False) -> PatientConnection:
        connection = await PatientConnection.connect(autocommit=True, **self._parameters)
        await self._set_patience(connection)
        if said := (await find_engine(connection)).say_two_phases:
            connection.say_two_phases(said)
        await connection.set_autocommit(autocommit)
        return connection

    async def _set_patience(self, connection: PatientConnection) -> None:
        connection.patience = self._patience_seconds

    async def check_hot(self) -> None:
        """Raises a BrokerError unless there is a connection for hot statements.

        It does not wait for one that others use: however busy they are, the database answers them.
        """
        if not self._hot_pool.has_some():
            async with self.hot():
                pass

    async def now(self) -> datetime:
        """The database's time, as of some moment while this call runs."""
        async with self.hot() as connection:
            [[(now,)]] = await connection.run((_NOW, {}))
            assert isinstance(now, datetime)
            return now


async def driver_of(connection: ResourceConnection) -> Connection:
    """Returns the driver's connection, for statements of the transaction that are not SQLAlchemy's."""
    driver = (await connection.get_raw_connection()).driver_connection
    assert isinstance(driver, psycopg.AsyncConnection)
    return driver


def _check(connection: AdaptedConnection, *_: object) -> None:
    """Checks a connection before the engine hands it out.

    If it is lost, the other idle ones are taken to be lost too.
    """
    try:
        connection.run_async(PatientConnection.check)
    except psycopg.Error as error:
        raise InvalidatePoolError from error
