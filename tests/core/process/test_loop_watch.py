"""The watch of the event loop keeps what the garbage collector looks at small (M1)."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from broker.core.process import loop_watch
from broker.observability.metrics.counters import Counters


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def no_collector() -> Iterator[None]:
    """None that comes by itself."""
    gc.disable()
    yield
    gc.enable()


async def _watched_until(gone: asyncio.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "WATCH_SECONDS", 0.0)
    watch = asyncio.create_task(loop_watch.watch_loop(Counters()))
    await asyncio.wait_for(gone.wait(), 10)
    watch.cancel()
    with suppress(asyncio.CancelledError):
        await watch


async def test_what_is_young_is_collected_however_few_there_are(
    monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    monkeypatch.setattr(loop_watch, "FULL_COLLECTION_EVERY", 1_000_000)
    young, gone = _Cycle(), asyncio.Event()
    weakref.finalize(young, gone.set)
    del young
    await _watched_until(gone, monkeypatch)


async def test_what_is_old_is_collected_now_and_then(monkeypatch: pytest.MonkeyPatch, no_collector: None) -> None:
    monkeypatch.setattr(loop_watch, "FULL_COLLECTION_EVERY", 3)
    old, gone = _Cycle(), asyncio.Event()
    gc.collect(1)
    weakref.finalize(old, gone.set)
    del old
    await _watched_until(gone, monkeypatch)
