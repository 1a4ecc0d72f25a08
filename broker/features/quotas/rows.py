"""Rows of the limits of projects, the buckets that processes share, and the counts of projects' resources."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ScalarSelect, Table, delete, func, select
from sqlalchemy.dialects.postgresql import insert as pg_insert

from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.locks import lock_name
from broker.db.schema.tables import payload_schemas, project_quotas, quota_buckets, snapshots, subscriptions, topics
from broker.features.quotas.quota import NO_QUOTAS, ProjectQuotas, Usage
from broker.model.quota_names import Counted

_BALANCE_QUOTAS = statements.hot("balance_quotas")
_TABLES: Mapping[Counted, Table] = {
    "topics": topics,
    "subscriptions": subscriptions,
    "snapshots": snapshots,
    "schemas": payload_schemas,
}

MEMORY_SECONDS = 5.0  # of the average that is told as usage
FORGOTTEN = timedelta(hours=1)  # after which a bucket that nobody uses is deleted: if it is full by then


class Taken(NamedTuple):
    """`amount` was taken from a bucket."""

    project: str
    principal: str
    quota: str
    rate: float
    amount: float


async def read_all_quotas(connection: ResourceConnection) -> dict[str, ProjectQuotas]:
    """Reads the quotas that were set, by project."""
    rows = await connection.execute(select(project_quotas))
    return {row.project: ProjectQuotas(row.limits, row.principal_limits) for row in rows}


async def lock_quotas(connection: ResourceConnection, *, project: str) -> ProjectQuotas:
    """Locks the quotas that were set for a project until the transaction ends, and returns them."""
    await connection.execute(
        pg_insert(project_quotas).values(project=project, limits={}, principal_limits={}).on_conflict_do_nothing()
    )
    query = select(project_quotas).where(project_quotas.c.project == project).with_for_update()
    row = (await connection.execute(query)).one()
    return ProjectQuotas(row.limits, row.principal_limits)


async def write_quotas(connection: ResourceConnection, *, project: str, quotas: ProjectQuotas) -> None:
    """Under the lock of lock_quotas."""
    if quotas == NO_QUOTAS:
        await connection.execute(delete(project_quotas).where(project_quotas.c.project == project))
        return
    values = {"limits": dict(quotas.limits), "principal_limits": dict(quotas.principal_limits)}
    query = project_quotas.update().where(project_quotas.c.project == project)
    await connection.execute(query.values(values))


async def balance_quotas(
    connection: HotConnection, *, taken: Sequence[Taken], now: datetime
) -> dict[tuple[str, str, str], float]:
    """Tell what was taken; what the buckets hold then, by project, principal and quota.  Each bucket once."""
    projects, principals, quotas, rates, amounts = zip(*taken, strict=True)
    parameters = {
        "projects": list(projects),
        "principals": list(principals),
        "quotas": list(quotas),
        "rates": list(rates),
        "taken": list(amounts),
        "now": now,
        "memory": MEMORY_SECONDS,
    }
    [rows] = await connection.run((_BALANCE_QUOTAS, parameters))
    return {(row.project, row.principal, row.quota): row.held for row in rows}


async def delete_forgotten(connection: ResourceConnection, *, now: datetime) -> None:
    """Buckets that are full, and have been left alone for long."""
    bucket = quota_buckets.c
    full = bucket.held + bucket.rate * FORGOTTEN.total_seconds() >= bucket.rate
    await connection.execute(delete(quota_buckets).where(bucket.balanced_at < now - FORGOTTEN, full))


async def read_usage(
    connection: ResourceConnection, *, project: str, now: datetime, principals: int
) -> list[Usage]:
    """Reads the usage of a project, and of the `principals` that used most of a quota lately."""
    bucket = quota_buckets.c
    query = select(bucket.principal, bucket.quota, bucket.usage, bucket.balanced_at)
    most = (
        select(bucket.principal)
        .where(bucket.project == project, bucket.principal != "")
        .group_by(bucket.principal)
        .order_by(func.max(bucket.usage / func.greatest(bucket.rate, 1)).desc(), bucket.principal)
        .limit(principals)
    )
    of_these = (bucket.principal == "") | bucket.principal.in_(most)
    query = query.where(bucket.project == project, of_these).order_by(bucket.principal, bucket.quota)
    rows = await connection.execute(query)
    return [Usage(row.principal, row.quota, row.usage * _fading(now - row.balanced_at)) for row in rows]


def _fading(age: timedelta) -> float:
    return math.exp(-max(age.total_seconds(), 0) / MEMORY_SECONDS)


async def lock_count(connection: ResourceConnection, *, project: str, counted: Counted) -> None:
    """Locks a count until this transaction ends: no other transaction counts the same resources of the project."""
    await lock_name(connection, f"{project}/{counted}")


async def count(connection: ResourceConnection, *, project: str, counted: Counted, most: int | None = None) -> int:
    """Counts the resources of a project, up to `most`.  Only reads names in their index."""
    return await connection.scalar(select(_count(project, counted, most))) or 0


async def count_all(
    connection: ResourceConnection, *, project: str, counted: Sequence[Counted]
) -> Mapping[Counted, int]:
    """Counts several kinds of resources of the project, as `count` does."""
    row = (await connection.execute(select(*(_count(project, each).label(each) for each in counted)))).one()
    return {each: getattr(row, each) for each in counted}


def _count(project: str, counted: Counted, most: int | None = None) -> ScalarSelect[int]:
    name = _TABLES[counted].c.name
    names = select(name).where(name > f"{project}/{counted}/", name < f"{project}/{counted}0")
    if most is not None:
        names = names.limit(most)
    return select(func.count()).select_from(names.subquery()).scalar_subquery()
