"""A worker that starts while PostgreSQL does not answer ends by itself, so that it can be started again."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from broker.app import create_app
from broker.app_config import AppConfig
from broker.domain.errors import Unavailable


async def test_nothing_is_left_running_of_a_start_that_failed() -> None:
    """The pool's tasks survive being cancelled; a process with one of them never ends."""
    app = create_app(AppConfig(database_url="postgresql://nobody@127.0.0.1:1/nothing"))
    said: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message)

    with pytest.raises(Unavailable):
        await app({"type": "lifespan", "path": "", "state": {}}, receive, send)
    assert [message["type"] for message in said] == ["lifespan.startup.failed"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
