"""`{subscription}:tail` tells what is written into a journal, all of it and once (F3)."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from broker.features.journal import rows as written
from broker.features.journal import service as journal_tail
from broker.features.journal.service import PAUSE_SECONDS
from tests.features.inspect.test_inspection import Events, tailing
from tests.features.journal.test_journal import ALL, journaled
from tests.fixtures.broker import Json, Rest, eventually
from tests.fixtures.in_process import own_broker

FROM_THE_START = "2020-01-01T00:00:00Z"


async def attribution(events: Events, count: int) -> list[tuple[str, Json]]:
    """What happened, and its ids from the first to the last."""
    found = []
    for _ in range(count):
        kind, body = await events.next()
        assert kind == "journal", body
        found.append((body["event"], body["messages"]))
    return found


def run(first: str, last: str | None = None) -> list[Json]:
    return [{"firstMessageId": first, "lastMessageId": last or first}]


async def test_what_happens_is_told_as_it_happens(rest: Rest) -> None:
    await journaled(rest)
    ids = await rest.publish("before")
    await rest.drain()
    async with tailing(rest, rest.subscription()) as events:
        ids = await rest.publish("1", "2")
        received = await rest.pull()
        await rest.modify_ack_deadline(received, 30)
        await rest.modify_ack_deadline(received[:1], 0)
        await rest.acknowledge([*await rest.pull(), *received[1:]])
        await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2100-01-01T00:00:00Z"})
        assert await attribution(events, 4) == [
            ("HANDED_OUT", run(ids[0], ids[1])),
            ("EXTENDED", run(ids[0], ids[1])),
            ("NACKED", run(ids[0])),
            ("HANDED_OUT", run(ids[0])),
        ]
        acked = await attribution(events, 2)  # at their own attempts
        assert sorted(str(messages) for _, messages in acked) == sorted(str(run(id_)) for id_ in ids)
        assert {event for event, _ in acked} == {"ACKED"}
    async with tailing(rest, rest.subscription(), startTime=FROM_THE_START) as events:
        _, first = await events.next()
    assert (first["event"], first["client"], first["deliveryAttempt"]) == ("HANDED_OUT", "127.0.0.1", 1)
    assert first["messageCount"] == 1


async def test_a_tail_goes_on_behind_the_event_that_was_read_last(rest: Rest) -> None:
    await journaled(rest)
    name = rest.subscription()
    for text in "ab":
        await rest.publish(text)
        await rest.drain()
    numbers, events = [], []
    url = f"/v1/{name}:tail"
    async with rest.client.stream("GET", url, params={"startTime": FROM_THE_START}) as response:
        async for line in response.aiter_lines():
            kind, _, value = line.partition(": ")
            if kind == "id":
                numbers.append(value)
            if kind == "data":
                events.append(value)
            if len(events) == 4:
                break
    for read in range(4):
        headers = {"Last-Event-ID": numbers[read]}
        async with tailing(rest, name, headers, startTime=FROM_THE_START) as again:
            rest_of_it = [await again.next() for _ in range(3 - read)]
        assert len(rest_of_it) == 3 - read
    async with tailing(rest, name, {"Last-Event-ID": "9" * 18}) as again:  # of another database: from now on
        [id_] = await rest.publish("c")
        await rest.pull()
        assert await attribution(again, 1) == [("HANDED_OUT", run(id_))]
    code, why = await rest.error("GET", f"{name}:tail", headers={"Last-Event-ID": "-1"})
    assert (code, "Last-Event-ID=-1" in why) == ("INVALID_ARGUMENT", True)
    code, why = await rest.error("GET", f"{name}:tail", params={"startTime": "noon"})
    assert (code, "startTime" in why) == ("INVALID_ARGUMENT", True)


async def test_only_what_was_written_since_the_start_time_is_told(rest: Rest) -> None:
    await journaled(rest)
    await rest.publish("a")
    await rest.drain()
    await asyncio.sleep(0.01)
    start = datetime.now(UTC).isoformat()
    [id_] = await rest.publish("b")
    await rest.drain()
    async with tailing(rest, rest.subscription(), startTime=start) as events:
        assert await attribution(events, 2) == [("HANDED_OUT", run(id_)), ("ACKED", run(id_))]


@pytest.mark.parametrize("name", ["sub", "missing"])
async def test_without_a_journal_there_is_no_tail_and_what_to_do_is_said(rest: Rest, name: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    code, why = await rest.error("GET", f"{rest.subscription(name)}:tail")
    if name == "missing":
        assert code == "NOT_FOUND"
    else:
        assert (code, "extensions.journal.mode" in why) == ("FAILED_PRECONDITION", True)


@pytest.mark.parametrize("how", ["deleted", "deleted and made again", "without its journal", "stopped"])
async def test_a_tail_ends_with_what_it_tells_of(database_url: str, project: str, how: str) -> None:
    async with own_broker(database_url, project=project) as (broker, rest):
        await journaled(rest)
        name = rest.subscription()
        async with tailing(rest, name) as events:
            if how == "stopped":
                broker.stop_waiting()
                with pytest.raises(EOFError):
                    await events.next()
            elif how == "without its journal":
                body = {"subscription": {"extensions": {}}, "updateMask": "extensions"}
                await rest.ok("PATCH", name, body)
                assert await _end(events) == "FAILED_PRECONDITION"
            else:
                async with broker.parts.query_turns.of(project):  # so that it sees both at once
                    await asyncio.sleep(2 * PAUSE_SECONDS)
                    await rest.ok("DELETE", name)
                    if how == "deleted and made again":
                        await rest.create_subscription(extensions=ALL)
                assert await _end(events) == "NOT_FOUND"
        await eventually(lambda: not broker.claiming.tails._open)


async def _end(events: Events) -> Any:
    kind, body = await events.next()
    assert kind == "error"
    return body["error"]["status"]


async def test_nothing_is_left_out_or_told_twice_while_many_write_at_once(rest: Rest) -> None:
    await journaled(rest)
    async with tailing(rest, rest.subscription()) as events:

        async def work(number: int) -> None:
            for turn in range(4):
                await rest.publish(f"{number}.{turn}")
                for received in await rest.pull(max_messages=1):
                    await rest.modify_ack_deadline([received], 20)
                    await rest.acknowledge([received])

        await asyncio.gather(*(work(number) for number in range(10)))
        await rest.drain()
        counts: dict[str, int] = {}
        while counts.get("ACKED", 0) < 40:
            _, body = await events.next()
            counts[body["event"]] = counts.get(body["event"], 0) + body["messageCount"]
    assert counts["HANDED_OUT"] == counts["ACKED"] == 40
    async with tailing(rest, rest.subscription(), startTime=FROM_THE_START) as events:
        again: dict[str, int] = {}
        while again != counts:
            _, body = await events.next()
            again[body["event"]] = again.get(body["event"], 0) + body["messageCount"]
            assert again[body["event"]] <= counts[body["event"]]


async def test_more_than_a_look_reads_is_told_by_several(
    database_url: str, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (journal_tail, written):
        monkeypatch.setattr(module, "MAX_ROWS", 3)
    async with own_broker(database_url, project=project) as (_, rest):
        await journaled(rest)
        ids = []
        for text in "abcd":
            ids += await rest.publish(text)
            await rest.drain()
        async with tailing(rest, rest.subscription(), startTime=FROM_THE_START) as events:
            expected = [(event, run(id_)) for id_ in ids for event in ("HANDED_OUT", "ACKED")]
            assert await attribution(events, 8) == expected
