"""Where it cannot be known whether a credential still holds, nobody is let in; and what to do once it can."""

import asyncio

import pytest

from broker.access.versions.access_changes import AccessChanges, Versions
from broker.access.versions.version import AccessVersion
from broker.access.versions.version_rows import raise_access_version
from broker.db.driver.database import Database
from broker.model.errors import Unavailable
from tests.fixtures.broker import eventually


class _Broken:
    """A loader that cannot load."""

    def __init__(self) -> None:
        self.broken = False
        self.loaded: list[int] = []

    async def load(self, changes: AccessChanges) -> None:
        if self.broken:
            raise Unavailable("not now")
        self.loaded.append(changes.versions.access)


async def _raise(database: Database, *projects: str, credentials: bool) -> None:
    async with database.transaction() as connection:
        await raise_access_version(
            connection, schema=database.schema, projects=projects or ["projects/p"], credentials=credentials
        )


async def test_a_version_is_known_once_all_have_loaded_it(database: Database) -> None:
    seconds, reported = [0.0], []
    version, loader = AccessVersion(database, ticks=lambda: seconds[0]), _Broken()
    version.before_change(loader.load)
    version.after_change(lambda _: reported.append(version.known.access))
    await version.refresh()
    assert (version.known, loader.loaded, reported) == (Versions(1, 1), [1], [1])
    await version.refresh()
    assert loader.loaded == [1]
    await _raise(database, credentials=False)
    loader.broken = True
    with pytest.raises(Unavailable):
        await version.refresh()
    assert (version.known, reported) == (Versions(1, 1), [1])
    seconds[0] += 3.0
    with pytest.raises(Unavailable):  # what is known is too old by now
        await version.check()
    loader.broken = False
    await version.check()
    assert (version.known, loader.loaded, reported) == (Versions(2, 1), [1, 2], [1, 2])
    await _raise(database, credentials=True)
    await version.refresh()
    assert version.known == Versions(3, 3)
    await version._hang_up()


async def test_what_is_known_is_believed_for_two_seconds_without_asking(database: Database) -> None:
    seconds = [0.0]
    version = AccessVersion(database, ticks=lambda: seconds[0])
    assert not version.is_fresh
    await version.check()
    seconds[0] = 1.9
    assert version.is_fresh
    seconds[0] = 2.1
    assert not version.is_fresh
    await version._hang_up()


async def test_a_change_that_somebody_speaks_of_is_looked_at_at_once(database: Database) -> None:
    version, known = AccessVersion(database), asyncio.Event()
    version.after_change(lambda _: known.set())
    running = asyncio.create_task(version.run())
    await known.wait()
    known.clear()
    await _raise(database, credentials=True)
    version.changed()
    await known.wait()
    assert version.known == Versions(2, 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_who_cannot_reach_the_database_knows_nothing() -> None:
    nowhere = Database("postgresql://nobody@127.0.0.1:9/none")
    try:
        with pytest.raises(Unavailable, match="cannot be looked up"):
            await AccessVersion(nowhere).check()
    finally:
        await nowhere.close()


@pytest.mark.parametrize("between", range(8))
async def test_whoever_watches_the_version_ends_when_it_is_told_to_though_a_change_comes_just_then(
    database: Database, between: int
) -> None:
    """asyncio.wait_for of Python 3.11 forgot the cancellation then, and the broker did not stop."""
    version, replica_reads = AccessVersion(database), []
    version.before_change(_Broken().load)
    watching = asyncio.create_task(version.run())
    await eventually(lambda: version.is_fresh)
    version.refresh = lambda: asyncio.sleep(0, replica_reads.append(None))  # type: ignore[method-assign]
    for _ in range(20):  # it waits for a hint
        await asyncio.sleep(0)
    version.changed()
    for _ in range(between):
        await asyncio.sleep(0)
    watching.cancel()
    await asyncio.wait((watching,), timeout=5)
    assert watching.cancelled(), replica_reads
