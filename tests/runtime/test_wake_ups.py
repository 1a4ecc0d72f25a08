"""What other processes hear of changes to topics and subscriptions (C8)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from broker.domain.errors import Unavailable
from broker.runtime import wake_ups as module
from broker.runtime.wake_ups import WakeUps
from broker.store.driver.database import Database
from tests.fixtures.broker import eventually


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
    telling = quiet(database)
    await telling.announce("projects/p/topics/a", "projects/p/subscriptions/b")
    with pytest.raises(Unavailable):
        await telling.run_sender()  # which the supervisor starts again
    monkeypatch.setattr(module, "notify_resources_changed", notify)
    sending = asyncio.create_task(telling.run_sender())
    await eventually(lambda: set(heard) == {"projects/p/topics/a", "projects/p/subscriptions/b"})
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending
