"""Service accounts and their keys, as Google's IAM has them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from broker.access.credentials import account_rows as store
from broker.access.credentials.key_pairs import make_key_pair, make_unique_id
from broker.access.policies.policy_rows import forget_member, forget_policy
from broker.access.principals.service_account import (
    ANY_PROJECT,
    MAX_ACCOUNTS,
    MAX_KEYS,
    ServiceAccount,
    ServiceAccountKey,
    check_texts,
    email_of,
    key_file,
)
from broker.access.versions.version_rows import raise_access_version
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database, ResourceConnection
from broker.features.iam.reference_rows import references_to_account
from broker.model.errors import AlreadyExists, FailedPrecondition, NotFound, ResourceExhausted
from broker.model.names import check_project, leaf
from broker.model.page import Page, cut_page
from broker.model.preview import UNGUARDED, Preview, Safeguards, preview_of_references

KEYS_AT_ONCE = 1  # that are made: each takes a processor for up to a second


class ServiceAccountService:
    """The service accounts of projects and their keys.

    `changed` is awaited after each committed change, and applies it in this process.
    """

    def __init__(
        self, database: Database, clock: DatabaseClock, *, changed: Callable[[], Awaitable[None]], base_url: str
    ) -> None:
        """`base_url`: the address at which the holders of keys reach the broker."""
        self._database = database
        self._clock = clock
        self._changed = changed
        self._base_url = base_url
        self._making = asyncio.Semaphore(KEYS_AT_ONCE)

    async def create_service_account(
        self, project: str, account_id: str, *, display_name: str, description: str
    ) -> ServiceAccount:
        """Creates a service account.  Raises InvalidArgument, AlreadyExists, ResourceExhausted (a project has 100
        of them).
        """
        check_project(project)
        check_texts(display_name, description)
        account = ServiceAccount(
            email=email_of(project, account_id),
            project=project,
            unique_id=make_unique_id(),
            display_name=display_name,
            description=description,
            disabled=False,
            created_at=self._clock.now(),
        )
        async with self._database.transaction() as connection:
            if not await store.insert_service_account(connection, account=account):
                raise AlreadyExists(f"Service account {account.email} already exists (project={project}).")
            if await store.count_service_accounts(connection, project=project) > MAX_ACCOUNTS:
                raise ResourceExhausted(f"A project has at most {MAX_ACCOUNTS} service accounts ({project}).")
            bound_in = await self._forget(connection, account)
            await self._raise_version(connection, {account.project, *bound_in})
        await self._changed()
        return account

    async def get_service_account(self, name: str) -> ServiceAccount:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            return await _existing(connection, name)

    async def list_service_accounts(self, project: str, page: Page) -> tuple[Sequence[ServiceAccount], str]:
        """Returns a page of a project's accounts by address, and the token of the next page."""
        check_project(project)
        async with self._database.transaction() as connection:
            found = await store.list_service_accounts(connection, project=project, page=page)
        return cut_page(found, page.size, lambda account: account.name)

    async def set_disabled(self, name: str, *, disabled: bool) -> None:
        """Disables or enables an account.  The keys and tokens of a disabled account are not accepted.  Raises
        NotFound.
        """
        async with self._database.transaction() as connection:
            account = await _existing(connection, name, lock=True)
            await store.set_disabled(connection, email=account.email, disabled=disabled)
            await self._raise_version(connection, {account.project})
        await self._changed()

    async def delete_service_account(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Deletes a service account with its keys, and removes the roles that it was given.

        Returns the preview if the caller asked only for that.  Raises NotFound, NotAsExpected.
        """
        async with self._database.transaction() as connection:
            account = await _existing(connection, name, lock=True)
            if safeguards.asked:
                safeguards.check_existed(account.created_at, account.name)
                references = await references_to_account(connection, account)
                if preview := safeguards.previewed(preview_of_references(references, time=self._clock.now())):
                    return preview
            await store.delete_service_account(connection, email=account.email)
            bound_in = await self._forget(connection, account)
            await self._raise_version(connection, {account.project, *bound_in})
        await self._changed()
        return None

    async def create_key(self, name: str) -> tuple[ServiceAccount, ServiceAccountKey, Mapping[str, Any]]:
        """Creates a key of an account.  Returns it with the file for its holder, which cannot be read again.

        Raises NotFound, FailedPrecondition (an account has 10 keys).
        """
        await self.get_service_account(name)
        async with self._making:
            pair = await asyncio.to_thread(make_key_pair)
        async with self._database.transaction() as connection:
            account = await _existing(connection, name, lock=True)
            if len(await store.list_keys(connection, email=account.email)) >= MAX_KEYS:
                raise FailedPrecondition(
                    f"A service account has at most {MAX_KEYS} keys; delete one first ({account.email})."
                )
            key = ServiceAccountKey(
                key_id=pair.key_id,
                email=account.email,
                public_key=pair.public_key,
                created_at=self._clock.now(),
            )
            await store.insert_key(connection, key=key)
            await self._raise_version(connection, {account.project})
        await self._changed()
        file = key_file(account, key_id=pair.key_id, private_key=pair.private_key, base_url=self._base_url)
        return account, key, file

    async def list_keys(self, name: str) -> tuple[ServiceAccount, Sequence[ServiceAccountKey]]:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            account = await _existing(connection, name)
            return account, await store.list_keys(connection, email=account.email)

    async def get_key(self, name: str) -> tuple[ServiceAccount, ServiceAccountKey]:
        """Raises NotFound."""
        account, keys = await self.list_keys(name.partition("/keys/")[0])
        for key in keys:
            if key.key_id == leaf(name):
                return account, key
        raise _no_key(name)

    async def delete_key(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Deletes a key.  Tokens that it signed, or was exchanged for, are no longer accepted.

        Returns the preview if the caller asked only for that.  Raises NotFound, NotAsExpected.
        """
        async with self._database.transaction() as connection:
            account = await _existing(connection, name.partition("/keys/")[0])
            if safeguards.asked:
                keys = await store.list_keys(connection, email=account.email)
                key = next((key for key in keys if key.key_id == leaf(name)), None)
                if key is None:
                    raise _no_key(name)
                safeguards.check_existed(key.created_at, name)
                if preview := safeguards.previewed(preview_of_references((), time=self._clock.now())):
                    return preview
            if not await store.delete_key(connection, email=account.email, key_id=leaf(name)):
                raise _no_key(name)
            await self._raise_version(connection, {account.project})
        await self._changed()
        return None

    async def _forget(self, connection: ResourceConnection, account: ServiceAccount) -> set[str]:
        """Removes the grants to an account of this name, and the policy on it.

        Returns the projects of the grants to it.
        """
        bound_in = await forget_member(connection, member=account.member)
        await forget_policy(connection, schema=self._database.schema, resource=account.name)
        return bound_in

    async def _raise_version(self, connection: ResourceConnection, projects: set[str]) -> None:
        await raise_access_version(connection, schema=self._database.schema, projects=projects, credentials=True)


async def _existing(connection: ResourceConnection, name: str, *, lock: bool = False) -> ServiceAccount:
    """Returns the account named `projects/{p}/serviceAccounts/{email or unique id}`; `-` stands for any project.

    Raises NotFound.
    """
    project, _, email = name.partition("/serviceAccounts/")
    account = None if "\0" in name else await store.find_service_account(connection, email=email, lock=lock)
    if account is None or project not in (account.project, ANY_PROJECT):
        raise NotFound(f"Unknown service account (resource={email[:300]}).")
    return account


def _no_key(name: str) -> NotFound:
    return NotFound(f"Service account key does not exist (resource={leaf(name)[:300]}).")
