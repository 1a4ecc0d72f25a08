"""The broker processes that run, so that each push subscription is delivered by one of them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, select, text
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.store.schema.tables import processes

_FORGOTTEN = timedelta(minutes=5)


async def record_process(connection: AsyncConnection, *, process_id: str, version: str, now: datetime) -> None:
    """This process runs, and knows the schema `version`.

    Need not outlive a crash, so the transaction does not wait for the disk.
    """
    await connection.execute(text("SET LOCAL synchronous_commit = off"))
    await connection.execute(
        pg_insert(processes)
        .values(process_id=process_id, seen_at=now, version=version)
        .on_conflict_do_update(index_elements=["process_id"], set_={"seen_at": now})
    )
    await connection.execute(delete(processes).where(processes.c.seen_at < now - _FORGOTTEN))


async def list_processes(connection: AsyncConnection, *, seen_since: datetime) -> Sequence[str]:
    """The ids of the processes that were seen since then."""
    running = select(processes.c.process_id).where(processes.c.seen_at >= seen_since)
    return (await connection.scalars(running)).all()


async def has_processes_without_version(connection: AsyncConnection) -> bool:
    """Whether any runs that cannot read encrypted secrets, or ran lately and did not say that it ends."""
    without = select(processes.c.process_id).where(processes.c.version.is_(None)).limit(1)
    return await connection.scalar(without) is not None


async def remove_process(connection: AsyncConnection, *, process_id: str) -> None:
    """This process ends."""
    await connection.execute(delete(processes).where(processes.c.process_id == process_id))
