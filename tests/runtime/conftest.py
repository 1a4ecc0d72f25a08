"""The pulls of a process, without one."""

from collections.abc import AsyncIterator

import pytest

from broker.runtime.database_clock import DatabaseClock
from broker.runtime.long_poll import LongPoll
from broker.runtime.tasks import Tasks
from tests.fixtures.claims import pull_claims
from tests.fixtures.core import make_core
from tests.fixtures.log import Log


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    yield tasks
    await tasks.close()


@pytest.fixture
async def long_poll(log: Log, tasks: Tasks) -> LongPoll:
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    return LongPoll(make_core(log.database, clock, tasks), pull_claims(log.database, clock, tasks))
