"""Creates, lists, changes and deletes the settings that the users of a project share."""

from collections.abc import Sequence
from secrets import token_hex
from typing import Any

import msgspec

from broker.core.context.wake_ups import WakeUps
from broker.core.process.database_clock import DatabaseClock
from broker.core.viewing.message_views import rules_of
from broker.db.driver.database import Database, ResourceConnection
from broker.features.project_settings import rows
from broker.features.project_settings.kinds import MASKING_RULE, MAX_RESOURCES, Kind, Settings, check_settings
from broker.features.project_settings.rows import SharedSetting
from broker.model.errors import Aborted, AlreadyExists, BrokerError, QuotaExceeded
from broker.model.names import check_name, check_project, leaf, not_found, project_of
from broker.model.page import Page, cut_page
from broker.model.preview import UNGUARDED, Preview, Safeguards, preview_of_references


class SharedSettingsService:
    """The calls about one kind."""

    def __init__(self, kind: Kind, database: Database, clock: DatabaseClock, wake_ups: WakeUps) -> None:
        self._kind = kind
        self._database = database
        self._clock = clock
        self._wake_ups = wake_ups

    async def create(self, name: str, settings: Settings) -> SharedSetting:
        """Raises InvalidArgument, AlreadyExists, ResourceExhausted (the project has MAX_RESOURCES)."""
        check_name(name, self._kind.collection)
        check_settings(self._kind, settings)
        now = self._clock.now()
        made = SharedSetting(
            name=name, definition=_definition(settings), etag=token_hex(8), created_at=now, updated_at=now
        )
        async with self._database.transaction() as connection:
            there = await rows.count_settings(
                connection, project=project_of(name), collection=self._kind.collection
            )
            if await rows.find_setting(connection, name=name) is not None:
                raise AlreadyExists(f"{self._kind.noun} already exists (resource={leaf(name)}).")
            if there >= MAX_RESOURCES:
                raise QuotaExceeded(
                    f"{project_of(name)} has {there} {self._kind.collection}, as many as a project may have: "
                    "delete one.",
                    log_message="A project has as many settings of a kind as may be.",
                    retry_seconds=None,
                )
            await rows.write_setting(connection, setting=made)
        await self._announce(name)
        return made

    async def get(self, name: str) -> SharedSetting:
        """Raises InvalidArgument, NotFound."""
        async with self._database.transaction() as connection:
            return await self._existing(connection, name)

    async def list_all(self, project: str, page: Page) -> tuple[Sequence[SharedSetting], str]:
        """A page by name, and the token of the next one.  Raises InvalidArgument."""
        async with self._database.transaction() as connection:
            found, page = await rows.list_settings(
                connection, project=project, collection=self._kind.collection, page=page
            )
        if not found:
            check_project(project)
        return cut_page(found, page.size, lambda setting: setting.name)

    async def update(self, name: str, wanted: Settings, paths: Sequence[str]) -> SharedSetting:
        """Changes the fields that the paths name; an etag that is given must be the present one.

        Raises InvalidArgument, NotFound, Aborted; nothing is changed then.
        """
        async with self._database.transaction() as connection:
            before = await self._existing(connection, name, lock=True)
            _check_etag(before, wanted.etag)
            merged = msgspec.convert(before.definition, self._kind.fields)
            for path in paths:
                setattr(merged, path, getattr(wanted, path))
            check_settings(self._kind, merged)
            changed = SharedSetting(
                name=name,
                definition=_definition(merged),
                etag=token_hex(8),
                created_at=before.created_at,
                updated_at=self._clock.now(),
            )
            await rows.write_setting(connection, setting=changed)
        await self._announce(name)
        return changed

    async def delete(self, name: str, *, etag: str = "", safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Returns what would be lost if that is all that was asked for.

        Raises InvalidArgument, NotFound, Aborted (another etag), NotAsExpected; nothing is changed then.
        """
        async with self._database.transaction() as connection:
            before = await self._existing(connection, name, lock=True)
            _check_etag(before, etag)
            safeguards.check_existed(before.created_at, name)
            if preview := safeguards.previewed(preview_of_references((), time=self._clock.now())):
                return preview
            await rows.delete_setting(connection, name=name)
        await self._announce(name)
        return None

    async def _existing(self, connection: ResourceConnection, name: str, *, lock: bool = False) -> SharedSetting:
        found = await rows.find_setting(connection, name=name, lock=lock)
        if found is None:
            raise self._not_found(name)
        return found

    def _not_found(self, name: str) -> BrokerError:
        return not_found(f"{self._kind.noun} not found", name, self._kind.collection)

    async def _announce(self, name: str) -> None:
        if self._kind is MASKING_RULE:
            await self._wake_ups.announce(rules_of(project_of(name)))


def _definition(settings: Settings) -> dict[str, Any]:
    """The fields that are set, as JSON has them."""
    settings = msgspec.structs.replace(settings, name=None, create_time=None, update_time=None, etag="")
    given: dict[str, Any] = msgspec.to_builtins(settings)
    return {name: value for name, value in given.items() if value}


def _check_etag(setting: SharedSetting, etag: str) -> None:
    if etag and etag != setting.etag:
        raise Aborted(f"{leaf(setting.name)} was changed meanwhile: its etag is another one (etag={etag[:100]}).")
