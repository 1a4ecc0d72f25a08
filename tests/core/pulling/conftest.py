from collections.abc import AsyncIterator

import pytest

from tests.core.pulling.raw import RawStreams
from tests.core.pulling.stream import Streams
from tests.fixtures.broker import Rest


@pytest.fixture
async def streams(broker_url: str, rest: Rest) -> AsyncIterator[Streams]:
    opened = Streams(broker_url, rest)
    yield opened
    await opened.close()
    await opened.delete()


@pytest.fixture
async def raw_streams(broker_url: str) -> AsyncIterator[RawStreams]:
    opened = RawStreams(broker_url)
    yield opened
    opened.close()
