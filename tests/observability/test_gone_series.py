"""Series of what is deleted or detached leave the metrics within minutes, in all processes, scraped or not."""

import os

import httpx
import pytest

from broker.app.broker import Broker
from broker.db.driver.database import Database
from broker.features.metrics.series_janitor import SERIES_SECONDS, SeriesJanitor
from broker.observability.metrics.book import REUSE_SECONDS, CounterBook
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import LAYOUTS, SENT
from tests.fixtures.broker import Rest
from tests.fixtures.metrics import scrape


def test_they_leave_within_minutes() -> None:
    assert 2 * SERIES_SECONDS + REUSE_SECONDS < 240


async def test_series_of_the_deleted_and_the_detached_leave_without_a_scrape(
    broker: tuple[Broker, httpx.AsyncClient], project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.features.metrics.figures.KEPT_SECONDS", -1.0)
    rest, janitor = Rest(broker[1], project), broker[0].workers["metrics of what is gone"]
    for topic in ("topic", "deleted-topic"):
        await rest.create_topic(topic)
        for name in ("kept", "deleted", "detached"):
            await rest.create_subscription(f"{name}-of-{topic}", topic=topic)
        await rest.publish("a", topic=topic)
        for name in ("kept", "deleted", "detached"):
            await rest.pull(f"{name}-of-{topic}")
    for name in ("deleted-of-topic", "deleted-of-deleted-topic"):
        await rest.ok("DELETE", rest.subscription(name))
    await rest.ok("POST", f"{rest.subscription('detached-of-topic')}:detach", {})
    await rest.ok("DELETE", rest.topic("deleted-topic"))
    await janitor.run_once()
    assert _named(await scrape(broker[1])) >= {
        "deleted-of-topic",
        "deleted-topic",
    }  # kept for those who scrape next
    monkeypatch.setattr("broker.observability.metrics.book.REUSE_SECONDS", -1.0)
    await janitor.run_once()
    named = _named(await scrape(broker[1]))
    assert named == {"topic", "kept-of-topic", "kept-of-deleted-topic", "detached-of-deleted-topic"}


def _named(scraped: object) -> set[str]:
    """What has series, but for what is counted together."""
    samples = scraped._samples  # type: ignore[attr-defined]
    found = {dict(labels).get(kind) for _, labels in samples for kind in ("topic", "subscription")}
    return {name for name in found if name and name != "other"}


@pytest.mark.parametrize("allows_memory", [True, False])
async def test_what_any_process_of_a_broker_has_counted_leaves_by_its_first_one(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, allows_memory: bool
) -> None:
    def refuse(name: str) -> int:
        raise PermissionError(name)

    if not allows_memory:
        monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    monkeypatch.setattr("broker.observability.metrics.book.REUSE_SECONDS", -1.0)
    name = "projects/p/subscriptions/gone"
    book = CounterBook(LAYOUTS, processes=2)
    other = CounterBook(LAYOUTS, processes=2, _file=os.dup(book._file))
    first, second = Counters(book, process=0), Counters(other, process=1)
    second.subscription(name)[SENT] += 1
    for counters, left in ((second, [name]), (first, [])):
        for _ in range(2):  # seen to be gone, and gone for a while
            await SeriesJanitor(database, counters).run_once()
        assert [each for each, entry in book.names("subscription") if entry] == left


async def test_a_name_that_nothing_can_have_leaves_as_well(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.observability.metrics.book.REUSE_SECONDS", -1.0)
    counters = Counters()
    counters.project("projects/a\0b")
    counters.topic("projects/p/topics/a\0b")
    for _ in range(2):
        await SeriesJanitor(database, counters).run_once()
    assert [name for kind in ("project", "topic") for name, entry in counters.book.names(kind) if entry] == []
