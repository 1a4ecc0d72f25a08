"""The rows of service accounts and of their keys."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from broker.access.principals.service_account import ServiceAccount, ServiceAccountKey
from broker.db.driver.database import ResourceConnection
from broker.db.schema.tables import service_account_keys, service_accounts
from broker.model.page import Page

_ACCOUNT = select(service_accounts)
_KEY = select(service_account_keys)


def _account(row: Any) -> ServiceAccount:
    return ServiceAccount(**row._mapping)


def _key(row: Any) -> ServiceAccountKey:
    return ServiceAccountKey(**row._mapping)


async def insert_service_account(connection: ResourceConnection, *, account: ServiceAccount) -> bool:
    """Returns False if the address is taken."""
    values = {column.name: getattr(account, column.name) for column in service_accounts.columns}
    statement = upsert(service_accounts).values(values).on_conflict_do_nothing()
    return await connection.scalar(statement.returning(service_accounts.c.email)) is not None


async def count_service_accounts(connection: ResourceConnection, *, project: str) -> int:
    query = select(func.count()).select_from(service_accounts).where(service_accounts.c.project == project)
    return await connection.scalar(query) or 0


async def find_service_account(
    connection: ResourceConnection, *, email: str, lock: bool = False, shared: bool = False
) -> ServiceAccount | None:
    """The account with this address, in any letter case, or unique id.

    With `lock` it does not change until the transaction ends; with `shared`, too, others may lock it likewise.
    """
    named = (service_accounts.c.email == email.lower()) | (service_accounts.c.unique_id == email)
    query = _ACCOUNT.where(named)
    row = (await connection.execute(query.with_for_update(read=shared) if lock else query)).one_or_none()
    return None if row is None else _account(row)


async def lock_service_accounts(connection: ResourceConnection, *, emails: Collection[str]) -> set[str]:
    """Returns those of the addresses, in lower case, that accounts have.  These accounts are not deleted until the
    transaction ends.
    """
    found = select(service_accounts.c.email).where(
        service_accounts.c.email.in_({email.lower() for email in emails})
    )
    locked = found.order_by(service_accounts.c.email).with_for_update(read=True)
    return {*await connection.scalars(locked)} if emails else set()


async def list_service_accounts(
    connection: ResourceConnection, *, project: str, page: Page
) -> list[ServiceAccount]:
    """Lists a page of a project's accounts, by name, and one more."""
    after = page.after.removeprefix(f"{project}/serviceAccounts/")
    query = _ACCOUNT.where(service_accounts.c.project == project, service_accounts.c.email > after)
    if page.only is not None:
        emails = [name.removeprefix(f"{project}/serviceAccounts/") for name in page.only]
        query = query.where(service_accounts.c.email.in_(emails))
    rows = await connection.execute(query.order_by(service_accounts.c.email).limit(page.size + 1))
    return [_account(row) for row in rows]


async def set_disabled(connection: ResourceConnection, *, email: str, disabled: bool) -> None:
    await connection.execute(
        update(service_accounts).where(service_accounts.c.email == email).values(disabled=disabled)
    )


async def delete_service_account(connection: ResourceConnection, *, email: str) -> None:
    """Deletes an account with its keys."""
    await connection.execute(delete(service_accounts).where(service_accounts.c.email == email))


async def insert_key(connection: ResourceConnection, *, key: ServiceAccountKey) -> None:
    values = {column.name: getattr(key, column.name) for column in service_account_keys.columns}
    await connection.execute(insert(service_account_keys).values(values))


async def list_keys(connection: ResourceConnection, *, email: str) -> Sequence[ServiceAccountKey]:
    """Lists the keys of an account, by id."""
    query = _KEY.where(service_account_keys.c.email == email).order_by(service_account_keys.c.key_id)
    return [_key(row) for row in await connection.execute(query)]


async def delete_key(connection: ResourceConnection, *, email: str, key_id: str) -> bool:
    """Returns whether there was such a key."""
    deleted = await connection.execute(
        delete(service_account_keys).where(
            service_account_keys.c.email == email, service_account_keys.c.key_id == key_id
        )
    )
    return deleted.rowcount == 1


async def all_accounts(connection: ResourceConnection, *, projects: Collection[str] | None) -> list[ServiceAccount]:
    """Lists the accounts of the projects; None: of all projects."""
    query = _ACCOUNT if projects is None else _ACCOUNT.where(service_accounts.c.project.in_(projects))
    return [_account(row) for row in await connection.execute(query)]


async def all_keys(connection: ResourceConnection, *, projects: Collection[str] | None) -> list[ServiceAccountKey]:
    """Lists the keys of the accounts of the projects; None: of all projects."""
    query = _KEY
    if projects is not None:
        emails = select(service_accounts.c.email).where(service_accounts.c.project.in_(projects))
        query = query.where(service_account_keys.c.email.in_(emails))
    return [_key(row) for row in await connection.execute(query)]
