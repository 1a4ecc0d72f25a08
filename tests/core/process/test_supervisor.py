"""What the log says of workers that fail: once when it begins, traced if it is a defect, and once when it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from broker.core.process.supervisor import Loop, Supervisor
from broker.model.errors import Unavailable
from broker.observability.state_changes import StateChanges
from tests.fixtures.broker import eventually


class Failing:
    """A worker that fails at once so often, then goes on."""

    def __init__(self, error: Exception, *, times: int) -> None:
        self.failures = 0
        self._error = error
        self._times = times

    async def run(self) -> None:
        if self.failures < self._times:
            self.failures += 1
            raise self._error
        await asyncio.Event().wait()


@asynccontextmanager
async def _supervised(worker: Failing, *, excused: Callable[[], bool] = lambda: False) -> AsyncIterator[None]:
    workers = {"sweeper": Loop(worker.run, healthy_seconds=0.2)}
    supervisor = Supervisor(workers, StateChanges(), excused=excused)
    await supervisor.start()
    yield
    await supervisor.stop()


async def test_a_defect_is_told_once_with_its_traceback_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    worker = Failing(KeyError("missing"), times=3)
    async with _supervised(worker):
        await eventually(lambda: len(caplog.records) == 2)
    assert worker.failures == 3
    began, ended = caplog.records
    assert began.levelname == "ERROR"
    assert began.getMessage() == "the background worker 'sweeper' fails, and is started again: KeyError: 'missing'"
    assert began.exc_info is not None
    assert ended.levelname == "INFO"
    assert ended.getMessage().startswith("the background worker 'sweeper' works again, after ")


@pytest.mark.parametrize("excused", [False, True])
async def test_what_passes_by_itself_is_not_told(caplog: pytest.LogCaptureFixture, excused: bool) -> None:
    caplog.set_level("INFO")
    worker = Failing(Unavailable("The database went away."), times=2)
    async with _supervised(worker, excused=lambda: excused):
        await eventually(lambda: worker.failures == 2)
    assert caplog.records == []
