"""What a page may cost the server and the network: statements, and bytes."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from broker.app.asgi import for_port
from broker.app.broker import Broker
from broker.console.api import Api, Viewer
from broker.console.page import PageRoute, View
from broker.console.routes import PAGES
from broker.db.driver.hot_connection import HotConnection
from broker.net.first_bytes import HTTP1_API
from tests.console.budgets import budget_of
from tests.console.sample import QUERY, Sample, fill, fill_up
from tests.fixtures.broker import Rest
from tests.fixtures.push_sink import PushSink

SCRIPTS, STYLES = 15_000, 12_000  # bytes, compressed
RUNS = 5  # of each page
GZIP = {"Accept-Encoding": "gzip"}


@pytest.mark.slow
@pytest.mark.ci
async def test_pages_with_full_lists_are_compressed(rest: Rest, push_sink: PushSink) -> None:
    sample = await fill_up(rest, push_sink)
    for route in PAGES:
        async with rest.client.stream("GET", sample.page(route.path), headers=GZIP) as answer:
            sent = b"".join([part async for part in answer.aiter_raw()])
        assert answer.headers["content-encoding"] == "gzip", route.path
        assert len(sent) < len(gzip.decompress(sent)), route.path


def test_scripts_and_styles_are_small() -> None:
    files = list((Path(__file__).parents[2] / "broker/console/static").glob("*.*"))
    for suffix, most in ((".js", SCRIPTS), (".css", STYLES)):
        found = [file.read_bytes() for file in files if file.suffix == suffix]
        assert found
        assert sum(len(gzip.compress(content, 9)) for content in found) <= most


async def test_a_page_that_another_site_opens_is_not_compressed(rest: Rest, sample: Sample) -> None:
    address = sample.page("projects/{project}/topics/{topic}/messages")
    for site, encoding in {"same-origin": "gzip", "none": "gzip", "same-site": None, "cross-site": None}.items():
        headers = {**GZIP, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        answer = await rest.client.get(address, headers=headers)
        assert answer.status_code == 200
        assert answer.headers.get("content-encoding") == encoding, site
        assert "Sec-Fetch-Site" in answer.headers["vary"]


@pytest.mark.parametrize("accepted", ["", "identity", "br", "gzip;q=0", "x-gzip-like"])
async def test_clients_that_do_not_take_gzip_get_none(rest: Rest, accepted: str) -> None:
    page = await rest.client.get("/console/help", headers={"Accept-Encoding": accepted})
    [style] = [part for part in page.text.split('"') if part.endswith("console.css")]
    for path in ("/console/help", style):
        answer = await rest.client.get(path, headers={"Accept-Encoding": accepted})
        assert "content-encoding" not in answer.headers
        assert int(answer.headers["content-length"]) == len(answer.content)


# --- statements -----------------------------------------------------------------------------------------------

_statements: ContextVar[list[str] | None] = ContextVar("statements", default=None)


@contextmanager
def counted_statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Note the statements that are sent within a page, of both kinds of connection."""
    run = HotConnection.run

    async def noting(self: HotConnection, *bound: Any, as_written: bool = False) -> list[list[Any]]:
        if (sent := _statements.get()) is not None:
            sent += [str(statement.name) for statement, _ in bound]
        return await run(self, *bound, as_written=as_written)

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if (sent := _statements.get()) is not None:
            sent.append(statement)

    monkeypatch.setattr(HotConnection, "run", noting)
    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def statements_of(broker: Broker, route: PageRoute, sample: Sample) -> list[str]:
    """Return the statements of a page in the run with the fewest: others fill caches, or start background work."""
    parts = {name: value for name, value in sample.ids.items() if f"{{{name}}}" in route.path}
    view = View(
        api=Api(for_port(broker)[HTTP1_API]), viewer=Viewer(), parts=parts, query=QUERY, now=broker.core.clock.now()
    )
    runs = []
    for _ in range(RUNS):
        sent: list[str] = []
        token = _statements.set(sent)
        try:
            await route.make(view)
        finally:
            _statements.reset(token)
        runs.append(sent)
    return min(runs, key=len)


@pytest.mark.own_broker
async def test_a_page_sends_few_statements_and_no_more_for_more_rows(
    broker: Broker, rest: Rest, push_sink: PushSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    with counted_statements(monkeypatch):
        sample = await fill(rest, push_sink)
        few = {route.path: await statements_of(broker, route, sample) for route in PAGES}
        await fill_up(rest, push_sink, sample)
        many = {route.path: await statements_of(broker, route, sample) for route in PAGES}
    for path, sent in (*few.items(), *many.items()):
        assert len(sent) <= budget_of(path).statements, (path, sent)
    assert max(map(len, few.values())) > 0
