"""Schedules over REST, an extension (J2)."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest, eventually, message, text

pytestmark = pytest.mark.own_broker(allow_reset=True, min_delivery_attempts=1)

PATH = "projects/p/schedules"


def body(**fields: Any) -> Json:
    return {"topic": "projects/p/topics/topic", "message": message("hello"), "schedule": "0 3 * * *"} | fields


async def refused(rest: Rest, name: str, **fields: Any) -> str:
    answer = await rest.call("PUT", f"{PATH}/{name}", json=body(**fields))
    assert answer.status_code == 400, answer.text
    return str(answer.json()["error"]["message"])


async def test_a_schedule_ticks_each_second_and_says_what_became_of_each(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    template = message("{{schedule}} {{tick}} {{time}} {{{{", {"n": "{{tick}}"}, orderingKey="k")
    made = await rest.ok(
        "PUT", f"{PATH}/each", json=body(message=None, template=template, schedule=None, interval="1s")
    )
    assert (made["state"], made["interval"], made["missed"]) == ("ACTIVE", "1s", "ONE")

    async def three() -> list[Json]:
        return (await rest.ok("GET", f"{PATH}/each/ticks"))["ticks"][-3:] if len(received) >= 3 else []

    received: list[Json] = []
    while len(received) < 3:
        received += await rest.drain()
        await asyncio.sleep(0.1)
    ticks = list(reversed(await eventually(three)))
    for number, (got, tick) in enumerate(zip(received, ticks, strict=False), 1):
        assert (tick["number"], tick["outcome"]) == (str(number), "PUBLISHED")
        assert got["message"]["messageId"] == tick["messageId"]
        assert text(got) == f"each {number} {tick['tickTime']} {{{{{{{{"
        attributes = got["message"]["attributes"]
        assert attributes == {"n": str(number), "broker-schedule": "each", "broker-tick": tick["tickTime"]}
        assert got["message"]["orderingKey"] == "k"
    times = [datetime.fromisoformat(tick["tickTime"]) for tick in ticks]
    assert times[1] - times[0] == times[2] - times[1] == timedelta(seconds=1)


async def test_schedules_are_put_shown_listed_and_deleted(rest: Rest) -> None:
    await rest.create_topic()
    for name in ("one", "two", "three"):
        await rest.ok("PUT", f"{PATH}/{name}", json=body(timeZone="Europe/Berlin"))
    shown = await rest.ok("GET", f"{PATH}/one")
    assert (shown["schedule"], shown["timeZone"], shown["message"]) == (
        "0 3 * * *",
        "Europe/Berlin",
        message("hello"),
    )
    listed = await rest.ok("GET", PATH, params={"pageSize": 2})
    assert [each["name"] for each in listed["schedules"]] == [
        "projects/p/schedules/one",
        "projects/p/schedules/three",
    ]
    more = await rest.ok("GET", PATH, params={"pageSize": 2, "pageToken": listed["nextPageToken"]})
    assert [each["name"] for each in more["schedules"]] == ["projects/p/schedules/two"]
    times = (await rest.ok("GET", f"{PATH}/one:next", params={"pageSize": 3}))["times"]
    assert [times[0], len(times)] == [shown["nextTime"], 3]
    # What is changed but for its times keeps its next tick.
    changed = await rest.ok("PUT", f"{PATH}/one", json=body(timeZone="Europe/Berlin", message=message("other")))
    assert (changed["nextTime"], changed["createTime"]) == (shown["nextTime"], shown["createTime"])
    hourly = await rest.ok("PUT", f"{PATH}/hourly", json=body(schedule=None, interval="3600s"))
    await asyncio.sleep(1.1)
    changed = await rest.ok("PUT", f"{PATH}/hourly", json=body(schedule=None, interval="3600s", missed="SKIP"))
    assert (changed["nextTime"], changed["missed"]) == (hourly["nextTime"], "SKIP")
    await rest.ok("DELETE", f"{PATH}/one")
    assert (await rest.call("GET", f"{PATH}/one")).status_code == 404
    assert (await rest.call("DELETE", f"{PATH}/one")).status_code == 404
    await rest.ok("POST", "projects/p:reset", json={})
    assert await rest.ok("GET", PATH) == {}


async def test_what_is_paused_ticks_by_hand_alone(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.ok("PUT", f"{PATH}/hand", json=body())
    paused = await rest.ok("POST", f"{PATH}/hand:pause", json={})
    assert (paused["state"], "nextTime" in paused) == ("PAUSED", False)
    assert (await rest.ok("PUT", f"{PATH}/hand", json=body(schedule="* * * * * *")))["state"] == "PAUSED"
    assert len((await rest.ok("GET", f"{PATH}/hand:next"))["times"]) == 100
    ran = await rest.ok("POST", f"{PATH}/hand:run", json={})
    assert (ran["outcome"], ran["byHand"]) == ("PUBLISHED", True)
    assert [m["message"]["messageId"] for m in await rest.drain()] == [ran["messageId"]]
    await rest.ok("PUT", f"{PATH}/hand", json=body())
    resumed = await rest.ok("POST", f"{PATH}/hand:resume", json={})
    assert (resumed["state"], resumed["ticks"]) == ("ACTIVE", "1")
    assert datetime.fromisoformat(resumed["nextTime"]) > datetime.now(UTC)


async def test_a_pause_says_since_when_it_is_and_stays_the_same_when_it_is_asked_for_again(rest: Rest) -> None:
    await rest.create_topic()
    await rest.ok("PUT", f"{PATH}/held", json=body())
    first = await rest.ok("POST", f"{PATH}/held:pause", json={})
    assert first["pauseTime"] == first["updateTime"]
    assert (await rest.ok("POST", f"{PATH}/held:pause", json={}))["pauseTime"] == first["pauseTime"]
    assert (await rest.ok("PUT", f"{PATH}/held", json=body()))["pauseTime"] == first["pauseTime"]
    assert "pauseTime" not in await rest.ok("POST", f"{PATH}/held:resume", json={})


async def test_a_schedule_keeps_its_message_while_its_times_are_changed(rest: Rest) -> None:
    await rest.create_topic()
    given = await rest.ok("PUT", f"{PATH}/kept", json=body())
    times = {"topic": given["topic"], "interval": "7200s"}
    changed = await rest.ok("PUT", f"{PATH}/kept", json=times)
    assert (changed["message"], changed["interval"]) == (given["message"], "7200s")
    assert "schedule" not in changed
    template = {**times, "template": {"data": "YQ=="}}
    assert "template" in await rest.ok("PUT", f"{PATH}/kept", json=template)
    assert (await rest.ok("PUT", f"{PATH}/kept", json=times))["template"] == {"data": "YQ=="}
    new = await rest.call("PUT", f"{PATH}/new", json=times)
    assert (new.status_code, "for a new schedule" in new.text) == (400, True)
    assert (await rest.call("GET", f"{PATH}/new")).status_code == 404
    await rest.create_topic("other")  # where its message would be shown to others
    moved = await rest.call("PUT", f"{PATH}/kept", json={**times, "topic": rest.topic("other")})
    assert (moved.status_code, "with another topic" in moved.text) == (400, True)
    assert (await rest.ok("GET", f"{PATH}/kept"))["topic"] == given["topic"]


async def test_what_the_topic_refuses_is_in_the_history_and_the_schedule_goes_on(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.ok("PUT", f"{PATH}/often", json=body(schedule="* * * * * *"))

    async def last(outcome: str) -> Json | None:
        ticks = (await rest.ok("GET", f"{PATH}/often/ticks")).get("ticks", [])
        return ticks[0] if ticks and ticks[0]["outcome"] == outcome else None

    await eventually(lambda: last("PUBLISHED"))
    await rest.ok("POST", f"{rest.topic()}:freeze", json={"reason": "stocktaking"})
    tick = await eventually(lambda: last("REFUSED"))
    assert "stocktaking" in tick["reason"]
    assert (await rest.call("POST", f"{PATH}/often:run", json={})).status_code == 400
    await rest.ok("POST", f"{rest.topic()}:unfreeze", json={})
    await eventually(lambda: last("PUBLISHED"))
    await rest.ok("DELETE", rest.topic())
    tick = await eventually(lambda: last("REFUSED"))
    assert tick["reason"].startswith("NOT_FOUND: ")
    await rest.create_topic()
    await eventually(lambda: last("PUBLISHED"))


async def test_what_cannot_be_is_refused_and_nothing_is_stored(rest: Rest) -> None:
    await rest.create_topic()
    assert "Mars/Base" in await refused(rest, "bad", timeZone="Mars/Base")
    assert "'99 * * * *'" in await refused(rest, "bad", schedule="99 * * * *")
    assert "never comes" in await refused(rest, "bad", schedule="0 0 */29 2 FRI#5")
    assert "One of schedule and interval" in await refused(rest, "bad", schedule=None)
    assert "Only one of" in await refused(rest, "bad", interval="60s")
    assert "interval" in await refused(rest, "bad", schedule=None, interval="0.5s")
    assert "interval" in await refused(rest, "bad", schedule=None, interval="999999999s")
    assert "{{hour}}" in await refused(rest, "bad", message=None, template=message("{{hour}}"))
    assert "One of message and template" in await refused(rest, "bad", template=message("a"))
    assert "SOME" in await refused(rest, "bad", missed="SOME")
    assert "larger than" in await refused(rest, "bad", message=message("a" * 300_000))
    assert "end" in await refused(rest, "bad", end="2020-01-01T00:00:00Z")
    assert "no tick" in await refused(rest, "bad", start="2090-01-01T04:00:00Z", end="2090-01-01T05:00:00Z")
    assert "schedules" in await refused(rest, "9")
    assert "topics" in await refused(rest, "bad", topic="nonsense")
    many = {f"k{n}": "v" for n in range(99)}
    assert "attributes" in await refused(rest, "bad", message=message("a", many))
    missing = await rest.call("PUT", f"{PATH}/bad", json=body(topic="projects/p/topics/missing"))
    assert missing.status_code == 404
    assert await rest.ok("GET", PATH) == {}
