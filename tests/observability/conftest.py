from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from tests.fixtures.access import StoppedClock
from tests.fixtures.in_process import running_in_process


@pytest.fixture
async def broker(clone: Callable[[], Any]) -> AsyncIterator[tuple[Broker, httpx.AsyncClient]]:
    """One of the test's own process, and a client of it."""
    with clone() as database_url:
        async with in_process(database_url) as running:
            yield running


@asynccontextmanager
async def in_process(database_url: str) -> AsyncIterator[tuple[Broker, httpx.AsyncClient]]:
    broker = Broker(AppConfig(database_url=database_url, pool_size=4), make_clock=StoppedClock)
    async with running_in_process(broker) as client:
        yield broker, client
