"""What other processes hear of changes to topics and subscriptions (C8)."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from broker.access.versions.version_rows import raise_access_version
from broker.core.context import wake_ups as module
from broker.core.context.wake_ups import WakeUps
from broker.db.driver.database import Database
from broker.model.errors import Unavailable
from broker.observability.state_changes import StateChanges
from tests.fixtures.application import Application
from tests.fixtures.broker import eventually

_CHANNELS = ("broker_wake", "broker_resources", "broker_access", "broker_outbox")


@pytest.fixture
async def heard(database: Database) -> AsyncIterator[list[str | None]]:
    """What a process that listens hears, once it does."""
    names: list[str | None] = []
    other = WakeUps(database, wake=lambda *_: None, drop=names.append)
    listening = asyncio.create_task(other.run_listener())
    await eventually(lambda: names == [None])
    names.clear()
    yield names
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening


@pytest.fixture
def stranger(application: Application) -> Iterator[psycopg.Connection[Any]]:
    """A session of another role of the database that listens on all channels."""
    with application.session(autocommit=True) as session:
        for channel in _CHANNELS:
            session.execute(f'LISTEN "{channel}.broker"')
        yield session


def quiet(database: Database) -> WakeUps:
    return WakeUps(database, wake=lambda *_: None, drop=lambda _: None)


async def test_thousands_of_changes_are_told_in_one_transaction(
    database: Database, heard: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is deleted changes all its subscriptions."""
    names = [f"projects/p/subscriptions/s{number}" for number in range(3_000)]
    notify, calls = module.notify_resources_changed, []

    async def counted(*arguments: Any, **named: Any) -> None:
        calls.append(named)
        await notify(*arguments, **named)

    monkeypatch.setattr(module, "notify_resources_changed", counted)
    await quiet(database).announce(*names)
    assert len(calls) == 1
    await eventually(lambda: len(heard) == len(names))
    assert set(heard) == set(names)


async def test_a_name_too_long_to_be_told_makes_everything_be_read_again(
    database: Database, heard: list[str | None]
) -> None:
    await quiet(database).announce("projects/p/topics/" + "x" * 10_000)
    await eventually(lambda: heard == [None])


async def test_a_change_that_could_not_be_told_is_told_later(
    database: Database, heard: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made: whoever asked for it is not told that it has failed."""
    notify = module.notify_resources_changed

    async def away(*_: Any, **__: Any) -> None:
        raise Unavailable("for the test")

    monkeypatch.setattr(module, "notify_resources_changed", away)
    reporting = quiet(database)
    await reporting.announce("projects/p/topics/a", "projects/p/subscriptions/b")
    with pytest.raises(Unavailable):
        await reporting.run_sender()  # which the supervisor starts again
    monkeypatch.setattr(module, "notify_resources_changed", notify)
    sending = asyncio.create_task(reporting.run_sender())
    await eventually(lambda: set(heard) == {"projects/p/topics/a", "projects/p/subscriptions/b"})
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending


async def test_a_change_of_access_is_announced_in_its_transaction(database: Database) -> None:
    changes: list[bool] = []
    heard: list[str | None] = []
    other = WakeUps(database, wake=lambda *_: None, drop=heard.append, access_changed=lambda: changes.append(True))
    listening = asyncio.create_task(other.run_listener())
    await eventually(lambda: heard == [None])
    changes.clear()  # of listening anew
    async with database.transaction() as connection:
        await raise_access_version(connection, schema=database.schema, projects=["p"])
    await eventually(lambda: changes == [True])
    assert heard == [None]
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening


async def test_another_role_that_listens_learns_no_name(
    database: Database, heard: list[str | None], stranger: psycopg.Connection[Any]
) -> None:
    reporting = quiet(database)
    for _ in range(2):
        await reporting.announce("projects/p/topics/secret-plan")
    await eventually(lambda: len(heard) == 2)
    payloads = [notification.payload for notification in stranger.notifies(timeout=30, stop_after=2)]
    assert len(set(payloads)) == 2, "the same name can be recognised"
    for payload in payloads:
        assert b"secret" not in base64.b64decode(payload)
        assert "secret" not in payload


async def test_what_no_broker_has_sent_is_ignored_and_logged_once(
    database: Database, stranger: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A malformed payload, one as brokers might write it in clear text, and one of theirs on another channel."""
    caplog.set_level(logging.WARNING)
    heard: list[str | None] = []
    woken: list[tuple[int | None, int | None]] = []
    listening = WakeUps(database, wake=lambda *which: woken.append(which), drop=heard.append)
    task = asyncio.create_task(listening.run_listener(StateChanges()))
    await eventually(lambda: heard == [None])
    reporting = quiet(database)
    await reporting.announce("projects/p/topics/a")
    [sealed] = stranger.notifies(timeout=30, stop_after=1)
    for payload in ("x", "s", "s1e", "s1 r2", "\U0001f600", "projects/p/topics/a", "QUJD", "A" * 7_999):
        for channel in ("broker_wake", "broker_resources"):
            stranger.execute("SELECT pg_notify(%s, %s)", [f"{channel}.broker", payload])
    stranger.execute("SELECT pg_notify('broker_wake.broker', %s)", [sealed.payload])
    await reporting.announce("projects/p/topics/b")
    await eventually(lambda: heard[-1] == "projects/p/topics/b")
    assert heard == [None, "projects/p/topics/a", "projects/p/topics/b"]
    assert woken == [(None, None)]
    lines = [record.getMessage() for record in caplog.records if "notifications" in record.getMessage()]
    assert [line.split(",")[0] for line in lines] == [
        f"another program sends notifications on the channel {channel}"
        for channel in ("broker_wake", "broker_resources")
    ]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
