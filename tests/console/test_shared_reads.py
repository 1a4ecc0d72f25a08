"""Pages that are open and show the same are read once."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from starlette.responses import Response

from broker.console.shared_reads import LONGEST, MOST_KEPT, SharedReads
from tests.fixtures.access import guarded
from tests.fixtures.broker import Rest

POLL = {"Cache-Control": "max-age=1"}


class Made:
    """Answers that are counted, at a time that the test sets."""

    def __init__(self, status: int = 200) -> None:
        self.count = 0
        self.status = status
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.reads = SharedReads(lambda: self.now)
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def ask(self, key: str = "page") -> Response:
        return await self.reads.answer(key, self._make)

    async def _make(self) -> Response:
        self.count += 1
        number = self.count
        await self.may_end.wait()
        return Response(str(number), self.status)


async def test_an_answer_is_made_once_in_a_second_for_all_who_ask() -> None:
    made = Made()
    made.may_end.clear()
    asking = [asyncio.create_task(made.ask()) for _ in range(20)]
    other = asyncio.create_task(made.ask("another page"))
    await asyncio.sleep(0)
    made.may_end.set()
    assert {(await one).body for one in asking} == {b"1"}
    assert (await other).body == b"2"
    made.now += LONGEST
    assert (await made.ask()).body == b"1"
    made.now += timedelta(milliseconds=1)
    assert (await made.ask()).body == b"3"
    made.now -= timedelta(hours=1)  # somebody sets the clock
    assert (await made.ask()).body == b"4"


async def test_an_answer_is_made_for_the_others_if_the_first_who_asked_is_gone() -> None:
    made = Made()
    made.may_end.clear()
    first = asyncio.create_task(made.ask())
    await asyncio.sleep(0)
    second = asyncio.create_task(made.ask())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    made.may_end.set()
    assert (await second).body == b"1"


async def test_errors_are_not_kept_and_the_number_of_answers_is_bounded() -> None:
    made = Made(status=503)
    assert [(await made.ask()).body for _ in range(2)] == [b"1", b"2"]
    many = Made()
    for number in range(MOST_KEPT + 1):
        await many.ask(str(number))
    assert [(await many.ask(str(number))).body for number in (0, MOST_KEPT)] == [b"1", b"%d" % (MOST_KEPT + 2)]


def as_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200
    found = re.search(r'as of <time datetime="([^"]+)"', answer.text)
    assert found is not None
    return found[1]


async def test_a_page_that_somebody_opens_is_read_anew(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="3600s")
    path = f"/console/{rest.topic()}"
    polled = as_of(await rest.client.get(path, headers=POLL))
    await rest.publish("new")
    assert "/messages/" in (await rest.client.get(path)).text
    assert as_of(await rest.client.get(path)) > polled


@pytest.mark.own_broker(console="on")
async def test_open_pages_have_one_answer_unless_they_show_something_else(rest: Rest) -> None:
    await rest.create_topic()
    path = f"/console/{rest.topic()}"
    answers = await asyncio.gather(*(rest.client.get(path, headers=POLL) for _ in range(20)))
    assert len({as_of(one) for one in answers}) < 20
    dark = await rest.client.get(path, headers={**POLL, "Cookie": "broker_theme=dark"})
    assert 'data-theme="dark"' in dark.text
    plain = await rest.client.get(path, headers={**POLL, "Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    day = await rest.client.get(path, headers=POLL, params={"range": "24h"})
    assert "range=24h" in str(day.url)
    assert day.text != answers[0].text


@pytest.mark.own_broker(console="on")
async def test_an_answer_that_sets_a_cookie_is_not_shared(rest: Rest) -> None:
    await rest.create_topic()
    path = f"/console/{rest.topic()}"
    broken, other = await asyncio.gather(
        rest.client.get(path, headers={**POLL, "Cookie": "broker_receipt=nothing"}),
        rest.client.get(path, headers=POLL),
    )
    assert "broker_receipt" in broken.headers["set-cookie"]
    assert "set-cookie" not in other.headers


async def test_callers_never_get_the_answers_of_others(database_url: str) -> None:
    async with guarded(database_url, console="auto") as world:
        topic = f"{world.project}/topics/orders"
        await world.ok("PUT", topic, {})
        for name, role, statuses in (
            ("editor", "roles/pubsub.editor", [200]),
            ("viewer", "roles/pubsub.viewer", [200]),
            ("stranger", "", [403, 404]),
        ):
            key = await world.key(await world.account(f"{name}-account", role=role))
            async with httpx.AsyncClient(base_url=world.client.base_url, timeout=60) as browser:
                await browser.post("/console/login", data={"credential": json.dumps(key)})
                answer = await browser.get(f"/console/{topic}", headers=POLL)
            assert answer.status_code in statuses
            assert key["client_email"] in answer.text
