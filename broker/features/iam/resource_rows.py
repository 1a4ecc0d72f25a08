"""Finds out which resources exist."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, Select, Text, any_, func, literal, select, union_all

from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import payload_schemas, service_accounts, snapshots, subscriptions, topics


async def find_existing(connection: ResourceConnection, *, names: Collection[str], now: datetime) -> frozenset[str]:
    """Returns those of the `names` of topics, subscriptions, snapshots, schemas or service accounts that exist."""
    wanted = any_(literal(sorted(names), ARRAY(Text)))
    account = func.concat(service_accounts.c.project, "/serviceAccounts/", service_accounts.c.email)
    emails = any_(literal(sorted({name.rpartition("/")[2] for name in names}), ARRAY(Text)))
    found: list[Select[Any]] = [
        select(topics.c.name).where(topics.c.name == wanted),
        select(subscriptions.c.name).where(subscriptions.c.name == wanted),
        select(snapshots.c.name).where(snapshots.c.name == wanted, snapshots.c.expire_time > now),
        select(payload_schemas.c.name).where(payload_schemas.c.name == wanted),
        select(account).where(service_accounts.c.email == emails, account == wanted),
    ]
    return frozenset(await connection.scalars(union_all(*found)))
