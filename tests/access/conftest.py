from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.fixtures.access import Guarded, guarded


@pytest.fixture
async def broker(clone: Callable[[], Any]) -> AsyncIterator[Guarded]:
    with clone() as database_url:
        async with guarded(database_url) as running:
            yield running
