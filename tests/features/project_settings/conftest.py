from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Rest
from tests.fixtures.in_process import running_in_process


@pytest.fixture
async def broker(clone: Callable[[], Any]) -> AsyncIterator[Guarded]:
    with clone() as database_url:
        async with guarded(database_url) as running:
            yield running


@pytest.fixture
async def resettable(database_url: str) -> AsyncIterator[Rest]:
    """A client of a broker that may reset projects."""
    async with running_in_process(Broker(AppConfig(database_url=database_url, allow_reset=True))) as client:
        yield Rest(client, "projects/emptied")
