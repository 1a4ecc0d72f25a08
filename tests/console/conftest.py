from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.console.chromium import chromium
from tests.console.sample import Sample, fill
from tests.fixtures.broker import Rest
from tests.fixtures.push_sink import PushSink


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture
async def sample(rest: Rest, push_sink: PushSink) -> Sample:
    return await fill(rest, push_sink)
