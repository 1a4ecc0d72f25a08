"""What a scrape looks like, and who may read it (F1)."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.broker import Broker
from broker.observability.metrics.book import OTHER, REUSE_SECONDS, CounterBook
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.exposition import BookCollector, expose
from broker.observability.metrics.families import LAYOUTS, MESSAGE_SIZES, PUBLISHED_MESSAGES, SENT
from broker.observability.metrics.gauges import GaugeValues
from tests.fixtures.access import guarded
from tests.fixtures.broker import Rest
from tests.fixtures.metrics import Scraped, scrape

Running = tuple[Broker, httpx.AsyncClient]


async def test_a_scrape_is_prometheus_text_or_openmetrics_as_it_is_asked_for(broker: Running, project: str) -> None:
    rest = Rest(broker[1], project)
    await rest.create_topic()
    await rest.publish("x")
    plain = await broker[1].get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    modern = await broker[1].get("/metrics", headers={"accept": accept})
    assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert modern.text.endswith("# EOF\n")
    sample = f'pubsub_topic_published_messages_total{{project="{project[9:]}",topic="topic"}} 1.0'
    assert sample in plain.text.splitlines()
    assert sample in modern.text.splitlines()


def run_promtool(promtool: str, text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)


async def test_promtool_has_no_complaint(broker: Running, project: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian's package prometheus has it)")
    rest = Rest(broker[1], project)
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("x")
    await rest.acknowledge(await rest.pull())
    text = (await scrape(broker[1])).text
    done = await asyncio.to_thread(run_promtool, promtool, text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


async def test_with_authentication_a_viewer_gets_its_own_projects_and_strangers_nothing(
    clone: Callable[[], Any],
) -> None:
    with clone() as url:
        async with guarded(url) as broker:
            mine, others = f"{broker.project}/topics/mine", "projects/others/topics/theirs"
            for topic in (mine, others):
                await broker.ok("PUT", topic, {})
                await broker.ok("POST", f"{topic}:publish", {"messages": [{"data": "eA=="}]})
            viewer = broker.bearer(await broker.key(await broker.account("the-viewer", role="roles/viewer")))
            sender = broker.bearer(await broker.key(await broker.account("sender", role="roles/pubsub.publisher")))
            assert (await broker.client.get("/metrics")).status_code == 401
            refused = await broker.client.get("/metrics", headers=sender)
            assert (refused.status_code, refused.json()["error"]["status"]) == (403, "PERMISSION_DENIED")
            seen = await scrape(broker.client, **viewer)
            assert seen.of("topic", topic="mine")["published_messages"] == 1
            assert not seen.of("topic", topic="theirs")
            assert not seen.get("pubsub_sequencing_seconds_count")
            everything = await scrape(broker.client, **broker.bearer())
            assert everything.of("topic", topic="theirs")["published_messages"] == 1
            assert everything.get("pubsub_sequencing_seconds_count") == 2


def test_past_the_capacity_resources_are_counted_together_as_other() -> None:
    counters = Counters(CounterBook(LAYOUTS, capacity=2))
    for number in range(5):
        counters.topic(f"projects/p/topics/t{number}")[PUBLISHED_MESSAGES] += 1
    book = counters.book
    assert {name: book.totals("topic", entry)[PUBLISHED_MESSAGES] for name, entry in book.names("topic")} == {
        "projects/p/topics/t0": 1,
        "projects/p/topics/t1": 1,
        OTHER: 3,
    }


def test_what_has_no_series_of_its_own_is_shown_together_and_never_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.observability.metrics.book.REUSE_SECONDS", -1.0)
    counters = Counters(CounterBook(LAYOUTS, capacity=5, series=2))
    names = [f"projects/p/topics/t{number}" for number in range(8)]
    for name in names:
        counters.topic(name)[PUBLISHED_MESSAGES] += 1
    book = counters.book
    assert book.totals("topic", book.entry("topic", names[4]))[PUBLISHED_MESSAGES] == 1
    for kept in (names[:5], names[:3], names[:2]):
        for _ in range(2):  # seen to be gone, and gone for a while
            book.keep_only("topic", kept)
        shown = Scraped(expose(BookCollector(book, lambda _: True, GaugeValues()), "")[0].decode())
        assert shown.get("pubsub_topic_published_messages_total", topic="t0") == 1
        assert shown.get("pubsub_topic_published_messages_total", topic="t2") == 0
        assert shown.get("pubsub_topic_published_messages_total", topic="other") == 6


def test_the_place_of_a_deleted_subscription_is_anothers_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = Counters(CounterBook(LAYOUTS, capacity=1))
    book, old, new = counters.book, "projects/p/subscriptions/old", "projects/p/subscriptions/new"
    counters.subscription(old)[SENT] += 7
    book.keep_only("subscription", [])
    assert book.entry("subscription", new) == 0
    monkeypatch.setattr("broker.observability.metrics.book.REUSE_SECONDS", -1.0)
    book.keep_only("subscription", [])
    assert REUSE_SECONDS > 30  # in which every process has forgotten it (core/catalog/resource_cache.py)
    assert counters.subscription(new)[SENT] == 0


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(["entry", "entry", "entry", "keep"]), st.integers(0, 7)),
        max_size=40,
    )
)
def test_processes_agree_where_a_name_is_counted(steps: list[tuple[int, str, int]]) -> None:
    """Whatever the other names or forgets: what each knows of the names is a copy, which must never be stale."""
    one = CounterBook(LAYOUTS, capacity=4, processes=2)
    other = CounterBook(LAYOUTS, capacity=4, processes=2, _file=os.dup(one._file))
    there: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("broker.observability.metrics.book.REUSE_SECONDS", -1.0)
        for process, step, number in steps:
            book, name = (one, other)[process], f"projects/p/topics/t{number}"
            if step == "keep":
                for _ in range(2):  # seen to be gone, and gone for a while
                    book.keep_only("topic", [name])
                there = {kept: entry for kept, entry in there.items() if kept == name}
            elif entry := book.entry("topic", name):
                assert there.setdefault(name, entry) == entry
            else:
                assert len(there) == 4
                assert name not in there
            assert sorted(there.items()) == sorted(pair for pair in book.names("topic") if pair[1])
            assert len(set(there.values())) == len(there)


@pytest.mark.parametrize("count", [1, 30])
def test_many_sizes_are_noted_as_each_of_them_would_be(count: int) -> None:
    one, all_ = Counters(), Counters()
    sizes = [0, 64, 65, 1_024, 1_025, 10_485_760, 10_485_761][:: 7 // min(count, 7)] * count
    for size in sizes:
        MESSAGE_SIZES.observe(one.topic("projects/p/topics/t"), size)
    MESSAGE_SIZES.observe_all(all_.topic("projects/p/topics/t"), sizes)
    assert one.topic("projects/p/topics/t").tolist() == all_.topic("projects/p/topics/t").tolist()
