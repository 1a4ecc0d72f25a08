"""Creates, lists and deletes API keys.  The key string is returned once, when the key is created."""

import secrets
from collections.abc import Awaitable, Callable, Sequence

from broker.access.credentials import api_key_rows as store
from broker.access.principals.api_key import MAX_API_KEYS, ApiKey, check_api_key, digest_of
from broker.access.versions.version_rows import raise_access_version
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database, ResourceConnection
from broker.features.iam.role_service import check_roles
from broker.model.errors import NotFound, ResourceExhausted
from broker.model.names import check_project, leaf
from broker.model.page import Page, cut_page
from broker.model.preview import UNGUARDED, Preview, Safeguards, preview_of_references

_PREFIX = "brk-"  # so that tools that look for secrets in texts can know one


class ApiKeyService:
    """The API keys of projects.

    `changed` is awaited after each committed change, and applies it in this process.
    """

    def __init__(self, database: Database, clock: DatabaseClock, *, changed: Callable[[], Awaitable[None]]) -> None:
        self._database = database
        self._clock = clock
        self._changed = changed

    async def create_api_key(
        self, project: str, *, display_name: str, roles: Sequence[str], resources: Sequence[str]
    ) -> tuple[ApiKey, str]:
        """Creates a key.  Returns it and its key string.  Raises InvalidArgument, ResourceExhausted (a project has
        300 of them).
        """
        check_project(project)
        check_api_key(project, display_name, roles, resources)
        text = _PREFIX + secrets.token_urlsafe(32)
        key = ApiKey(
            name=f"{project}/apiKeys/{secrets.token_hex(16)}",
            display_name=display_name,
            digest=digest_of(text.encode()),
            roles=list(dict.fromkeys(roles)),
            resources=list(dict.fromkeys(resources)),
            created_at=self._clock.now(),
        )
        async with self._database.transaction() as connection:
            await check_roles(connection, project, roles, field="roles")
            await store.insert_api_key(connection, key=key)
            if await store.count_api_keys(connection, project=project) > MAX_API_KEYS:
                raise ResourceExhausted(f"A project has at most {MAX_API_KEYS} API keys ({project}).")
            await self._raise_version(connection, project)
        await self._changed()
        return key, text

    async def get_api_key(self, name: str) -> ApiKey:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            key = await store.find_api_key(connection, name=name)
        if key is None:
            raise _missing(name)
        return key

    async def list_api_keys(self, project: str, page: Page) -> tuple[Sequence[ApiKey], str]:
        """Returns a page of a project's keys by name, and the token of the next page."""
        check_project(project)
        async with self._database.transaction() as connection:
            found = await store.list_api_keys(connection, project=project, page=page)
        return cut_page(found, page.size, lambda key: key.name)

    async def delete_api_key(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Deletes a key.  Returns the preview if the caller asked only for that.  Raises NotFound,
        NotAsExpected.
        """
        async with self._database.transaction() as connection:
            if safeguards.asked:
                key = await store.find_api_key(connection, name=name)
                if key is None:
                    raise _missing(name)
                safeguards.check_existed(key.created_at, name)
                if preview := safeguards.previewed(preview_of_references((), time=self._clock.now())):
                    return preview
            if not await store.delete_api_key(connection, name=name):
                raise _missing(name)
            await self._raise_version(connection, name.partition("/apiKeys/")[0])
        await self._changed()
        return None

    async def _raise_version(self, connection: ResourceConnection, project: str) -> None:
        schema = self._database.schema
        await raise_access_version(connection, schema=schema, projects=[project], credentials=True)


def _missing(name: str) -> NotFound:
    return NotFound(f"API key does not exist (resource={leaf(name)[:300]}).")
