"""The last events of a project and its marks are kept and listed."""

import asyncio
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from broker.features.events import kept_rows
from tests.fixtures.broker import Json, Rest, eventually
from tests.fixtures.in_process import own_broker

CHANGED = "pubsub.subscription.filterChanged"


async def _list(rest: Rest, **parameters: Any) -> list[Json]:
    found: list[Json] = []
    while True:
        answer = await rest.ok("GET", f"{rest.project}/events", params=parameters)
        found += answer.get("events", [])
        if "nextPageToken" not in answer:
            return found
        parameters["pageToken"] = answer["nextPageToken"]


async def _mark(rest: Rest, what: str, **labels: str) -> Json:
    made: Json = await rest.ok("POST", f"{rest.project}/marks", {"text": what, "labels": labels})
    return made


async def _texts(rest: Rest, **parameters: Any) -> list[str]:
    return [each.get("text", each["type"]) for each in await _list(rest, **parameters)]


async def _with_events(rest: Rest) -> None:
    """A project that wants events, and a subscription whose filter can be changed, which is an event."""
    for topic in ("topic", "events"):
        await rest.create_topic(topic)
    await rest.create_subscription()
    await rest.ok("PATCH", f"{rest.project}/settings", {"eventTopic": rest.topic("events")})


async def _change_filter(rest: Rest, number: int = 0) -> None:
    await rest.ok("POST", f"{rest.subscription()}:setFilter", {"filter": f"attributes:a{number}"})


async def test_events_and_marks_are_listed_together_the_newest_first(rest: Rest) -> None:
    await _with_events(rest)
    await rest.create_subscription("event-sub", "events")
    assert await _list(rest) == []
    first = await _mark(rest, "Release 7", release="7", team="shop")
    await _change_filter(rest)
    second = await _mark(rest, "Release 8")
    found = await _list(rest)
    assert [found[0], found[2]] == [second, first]
    assert first == {
        "name": first["name"],
        "type": "mark",
        "project": rest.project,
        "time": first["time"],
        "text": "Release 7",
        "labels": {"release": "7", "team": "shop"},
    }
    changed = found[1]
    assert (changed["type"], changed["subject"]) == (CHANGED, rest.subscription())
    assert "attributes:a0" in changed["filter"]
    assert [each["time"] for each in found] == sorted((each["time"] for each in found), reverse=True)
    [published] = await eventually(partial(rest.drain, "event-sub"))
    assert changed["name"] == f"{rest.project}/events/{published['message']['attributes']['ce-id']}"
    assert await _texts(rest, orderBy="time") == ["Release 7", CHANGED, "Release 8"]
    assert await _texts(rest, orderBy="time", pageSize=1) == ["Release 7", CHANGED, "Release 8"]
    assert await _texts(rest, pageSize=2) == ["Release 8", CHANGED, "Release 7"]


async def test_a_list_is_filtered(rest: Rest) -> None:
    await _with_events(rest)
    first = await _mark(rest, "Release 7", release="7")
    await _change_filter(rest)
    await _mark(rest, "Migration 100%", team="data")
    for where, expected in {
        "type=mark": ["Migration 100%", "Release 7"],
        "type!=mark": [CHANGED],
        "type=pubsub.*": [CHANGED],
        "type:filter": [CHANGED],
        f'subject="{rest.subscription()}"': [CHANGED],
        f'subject="{rest.project}/topics/*"': [],
        "text:elease": ["Release 7"],
        'text:"100%"': ["Migration 100%"],
        'label="release=7"': ["Release 7"],
        'label="release=8"': [],
        'label!="release=7"': ["Migration 100%", CHANGED],
        "label:team": ["Migration 100%"],
        "label!=team": [CHANGED, "Release 7"],
        f'time<="{first["time"]}" AND type=mark': ["Release 7"],
        'time>"2999-01-01T00:00:00Z"': [],
    }.items():
        assert await _texts(rest, filter=where) == expected, where


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"orderBy": "text"}, "orderBy must be time or time desc (orderBy=text)."),
        ({"filter": "size=1"}, "filter: size cannot be compared; label, subject, text, time, type can."),
        ({"filter": "time=1"}, "filter: time cannot be compared by =."),
        ({"filter": "type>a"}, "filter: type cannot be compared by >."),
        ({"filter": "time>yesterday"}, "yesterday"),
        ({"filter": "type="}, "filter is not valid"),
        ({"pageToken": "x"}, "Invalid page token given (page_token=x)."),
        ({"pageSize": "-1"}, "page_size must not be negative (page_size=-1)."),
    ],
)
async def test_a_list_that_cannot_be_is_refused(rest: Rest, parameters: Any, said: str) -> None:
    code, message = await rest.error("GET", f"{rest.project}/events", params=parameters)
    assert code == "INVALID_ARGUMENT"
    assert said in message


async def test_a_token_is_good_in_its_order_alone(rest: Rest) -> None:
    for number in range(2):
        await _mark(rest, f"Release {number}")
    token = (await rest.ok("GET", f"{rest.project}/events?pageSize=1"))["nextPageToken"]
    code, message = await rest.error("GET", f"{rest.project}/events?orderBy=time&pageToken={token}")
    assert (code, message) == ("INVALID_ARGUMENT", f"Invalid page token given (page_token={token}).")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "Invalid value at 'text': a mark must have a text."),
        ({"text": " \n"}, "Invalid value at 'text': a mark must have a text."),
        ({"text": "x" * 501}, "Invalid value at 'text': it has 501 characters; 500 are the most."),
        ({"text": "a\0b"}, "Invalid value at 'text': it has the character U+0000."),
        ({"text": ["a"]}, "text"),
        ({"text": "a", "time": "2026-01-01T00:00:00Z"}, "time"),
        ({"text": "a", "labels": {"A": "b"}}, "labels has an invalid key ('A')"),
        ({"text": "a", "labels": {"a": "b c"}}, "labels['a'] has an invalid value ('b c')"),
        ({"text": "a", "labels": {f"k{n}": "" for n in range(65)}}, "labels has 65 entries, the maximum is 64."),
    ],
)
async def test_a_mark_that_cannot_be_is_refused_and_not_kept(rest: Rest, body: Any, said: str) -> None:
    code, message = await rest.error("POST", f"{rest.project}/marks", body)
    assert code == "INVALID_ARGUMENT"
    assert said in message
    assert await _list(rest) == []


async def test_so_many_of_the_last_are_kept_and_marks_are_not_lost_to_events(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "MAX_KEPT", 5)
    async with own_broker(database_url) as (broker, rest):
        await _with_events(rest)
        marks = [f"Release {number}" for number in range(7)]
        for what in marks:
            await _mark(rest, what)
        for number in range(8):
            await _change_filter(rest, number)
        found = await _list(rest, orderBy="time")
        assert [each["text"] for each in found[:5]] == marks[-5:]
        assert [each["filter"] for each in found[5:]] == [f"attributes:a{number}" for number in range(3, 8)]
        async with broker.core.database.transaction() as connection:
            assert await connection.scalar(text("SELECT count(*) FROM project_events")) == 10


async def test_pages_reach_the_end_while_marks_are_made(database_url: str) -> None:
    async with own_broker(database_url) as (broker, rest):
        async with broker.core.database.transaction() as connection:
            await connection.execute(
                text(
                    "INSERT INTO project_events (project, is_mark, event_id, occurred_at, event)"
                    " SELECT 'projects/p', n % 2 = 0, n, now(), jsonb_build_object('type', 'x', 'text', n::text)"
                    " FROM generate_series(1, 2000) AS n"
                )
            )
            sequence = "pg_get_serial_sequence('waiting_events', 'event_id')"
            await connection.execute(text(f"SELECT setval({sequence}, 2000)"))
        is_listed = asyncio.Event()

        async def mark() -> int:
            made = 0
            while not is_listed.is_set():
                await _mark(rest, f"new {made}")
                made += 1
            return made

        marking = asyncio.create_task(mark())
        found = await _texts(rest, pageSize=100)
        is_listed.set()
        made = await marking
        old = [int(each) for each in found if each.isdecimal()]
        assert old == sorted(set(old), reverse=True)  # none twice
        expected = {
            n for n in range(1, 2001) if n % 2 or n > 2 * made
        }  # the marks that were not replaced by new ones
        assert expected <= set(old)
        async with broker.core.database.transaction() as connection:
            assert await connection.scalar(text("SELECT count(*) FROM project_events WHERE is_mark")) == 1_000


async def test_a_project_without_an_event_topic_has_marks_alone_and_its_events_outlive_the_topic(
    rest: Rest,
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await _change_filter(rest)
    await _mark(rest, "Release 7")
    assert await _texts(rest) == ["Release 7"]
    await rest.create_topic("events")
    await rest.ok("PATCH", f"{rest.project}/settings", {"eventTopic": rest.topic("events")})
    await _change_filter(rest, 1)
    await rest.ok("PATCH", f"{rest.project}/settings", {"eventTopic": ""})
    await _change_filter(rest, 2)
    assert await _texts(rest) == [CHANGED, "Release 7"]
