"""Rows of the running broker processes, by which each push subscription is assigned to one of them."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import delete, select, text
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.db.schema.tables import processes

_FORGOTTEN = timedelta(minutes=5)


async def record_process(
    connection: AsyncConnection,
    *,
    process_id: str,
    version: str,
    now: datetime,
    connections: Mapping[str, int] | None = None,
    database_connections: int = 0,
) -> None:
    """Records that this process runs, and knows the schema `version`.

    Projects have so many `connections` to it, and it opens at most `database_connections`.  The row need not
    outlive a crash, so the transaction does not wait for the disk.
    """
    reported = dict(connections) if connections else None
    await connection.execute(text("SET LOCAL synchronous_commit = off"))
    await connection.execute(
        pg_insert(processes)
        .values(
            process_id=process_id,
            seen_at=now,
            version=version,
            connections=reported,
            database_connections=database_connections,
        )
        .on_conflict_do_update(index_elements=["process_id"], set_={"seen_at": now, "connections": reported})
    )
    await connection.execute(delete(processes).where(processes.c.seen_at < now - _FORGOTTEN))


async def list_processes(connection: AsyncConnection, *, seen_since: datetime) -> dict[str, Mapping[str, int]]:
    """Lists the processes that were seen since then, by their ids, with the connections that they reported."""
    query = select(processes.c.process_id, processes.c.connections)
    rows = await connection.execute(query.where(processes.c.seen_at >= seen_since))
    return {row.process_id: row.connections or {} for row in rows}


async def remove_process(connection: AsyncConnection, *, process_id: str) -> None:
    """Removes the row of a process that ends."""
    await connection.execute(delete(processes).where(processes.c.process_id == process_id))
