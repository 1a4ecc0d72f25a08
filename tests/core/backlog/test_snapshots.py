"""Snapshots and seek over REST (A9, A12)."""

import asyncio
from datetime import UTC, datetime, timedelta

from tests.fixtures.broker import Rest, text


def _snapshot(rest: Rest, name: str = "snap") -> str:
    return f"{rest.project}/snapshots/{name}"


def _in(delta: timedelta) -> str:
    return (datetime.now(UTC) + delta).isoformat().replace("+00:00", "Z")


async def _topic_and_subscription(rest: Rest, **fields: object) -> None:
    await rest.create_topic()
    await rest.create_subscription(**fields)


async def test_a_snapshot_is_created_read_listed_changed_and_deleted(rest: Rest) -> None:
    await _topic_and_subscription(rest)
    body = {"subscription": rest.subscription(), "labels": {"a": "b"}}
    created = await rest.ok("PUT", _snapshot(rest), body)
    expire_time = datetime.fromisoformat(created.pop("expireTime").replace("Z", "+00:00"))
    assert timedelta(days=6, hours=23) < expire_time - datetime.now(UTC) <= timedelta(days=7, minutes=1)
    assert created == {"name": _snapshot(rest), "topic": rest.topic(), "labels": {"a": "b"}}
    assert (await rest.ok("GET", _snapshot(rest)))["name"] == _snapshot(rest)
    assert [s["name"] for s in (await rest.ok("GET", f"{rest.project}/snapshots"))["snapshots"]] == [
        _snapshot(rest)
    ]
    assert await rest.ok("GET", f"{rest.topic()}/snapshots") == {"snapshots": [_snapshot(rest)]}
    update = {
        "snapshot": {"labels": {"c": "d"}, "expireTime": _in(timedelta(hours=1))},
        "updateMask": "labels,expireTime",
    }
    changed = await rest.ok("PATCH", _snapshot(rest), update)
    assert changed["labels"] == {"c": "d"}
    assert await rest.ok("DELETE", _snapshot(rest)) == {}
    assert (await rest.error("GET", _snapshot(rest)))[0] == "NOT_FOUND"


async def test_snapshots_refuse_what_is_wrong_and_name_it(rest: Rest) -> None:
    await _topic_and_subscription(rest)
    body = {"subscription": rest.subscription()}
    await rest.ok("PUT", _snapshot(rest), body)
    assert (await rest.error("PUT", _snapshot(rest), body))[0] == "ALREADY_EXISTS"
    missing = {"subscription": rest.subscription("missing")}
    assert (await rest.error("PUT", _snapshot(rest, "other"), missing))[0] == "NOT_FOUND"
    assert (await rest.error("PUT", _snapshot(rest, "x!"), body))[0] == "INVALID_ARGUMENT"
    assert (await rest.error("PUT", _snapshot(rest, "other"), {}))[0] == "INVALID_ARGUMENT"
    for update in (
        {"snapshot": {"labels": {}}},
        {"snapshot": {"topic": "x"}, "updateMask": "topic"},
        {"snapshot": {"expireTime": _in(timedelta(days=9))}, "updateMask": "expireTime"},
        {"snapshot": {"expireTime": "tomorrow"}, "updateMask": "expireTime"},
    ):
        assert (await rest.error("PATCH", _snapshot(rest), update))[0] == "INVALID_ARGUMENT"


async def test_seek_needs_exactly_one_target_that_exists(rest: Rest) -> None:
    await _topic_and_subscription(rest)
    seek = f"{rest.subscription()}:seek"
    code, message = await rest.error("POST", seek, {})
    assert (code, "No target was specified" in message) == ("INVALID_ARGUMENT", True)
    both = {"time": _in(timedelta()), "snapshot": _snapshot(rest)}
    assert (await rest.error("POST", seek, both))[0] == "INVALID_ARGUMENT"
    assert (await rest.error("POST", seek, {"snapshot": _snapshot(rest)}))[0] == "NOT_FOUND"
    code, message = await rest.error("POST", seek, {"time": "yesterday"})
    assert (code, "'time'" in message, "'yesterday'" in message) == ("INVALID_ARGUMENT", True, True)
    target = {"time": _in(timedelta())}
    assert (await rest.error("POST", f"{rest.subscription('none')}:seek", target))[0] == "NOT_FOUND"


async def test_a_snapshot_of_another_topic_is_refused(rest: Rest) -> None:
    await _topic_and_subscription(rest)
    await rest.create_topic("other")
    await rest.create_subscription("other-sub", "other")
    await rest.ok("PUT", _snapshot(rest), {"subscription": rest.subscription("other-sub")})
    error = await rest.error("POST", f"{rest.subscription()}:seek", {"snapshot": _snapshot(rest)})
    assert error[0] == "FAILED_PRECONDITION"


async def test_seek_brings_retained_messages_back_and_wakes_a_waiting_pull(rest: Rest) -> None:
    await _topic_and_subscription(rest, retainAckedMessages=True)
    await rest.publish("a", "b")
    await rest.acknowledge(await rest.pull())
    waiting = asyncio.create_task(rest.pull(wait=True))
    await asyncio.sleep(0.05)
    sought = await rest.ok("POST", f"{rest.subscription()}:seek", {"time": _in(timedelta(hours=-1))})
    created = sought["retainedSince"]
    assert sought == {
        "replayedMessages": 2,
        "retainedSince": created,
        "notRetained": f"Acked messages published before {created} are not retained.",
    }
    assert [text(m) for m in await waiting] == ["a", "b"]


async def test_a_seek_to_what_is_not_retained_says_so(rest: Rest) -> None:
    """Google's service answers nothing at all, and nothing comes."""
    await _topic_and_subscription(rest)
    await rest.publish("acked", "out")
    first, _ = await rest.pull()
    await rest.acknowledge([first])
    assert await rest.ok("POST", f"{rest.subscription()}:seek", {"time": _in(timedelta(hours=-1))}) == {
        "replayedMessages": 1,
        "notRetained": "Acked messages do not come again: neither retainAckedMessages of the subscription nor "
        "messageRetentionDuration of its topic is set.",
    }
    forward = await rest.ok("POST", f"{rest.subscription()}:seek", {"time": _in(timedelta(hours=1))})
    assert forward == {"replayedMessages": 0}


async def test_topic_retention_reaches_messages_older_than_the_subscription(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="3600s")
    await rest.publish("before")
    await rest.create_subscription()
    assert await rest.pull() == []
    await rest.ok("POST", f"{rest.subscription()}:seek", {"time": _in(timedelta(minutes=-30))})
    assert [text(m) for m in await rest.pull()] == ["before"]


async def test_seek_to_a_snapshot_and_the_plain_spellings(rest: Rest) -> None:
    await _topic_and_subscription(rest)
    await rest.publish("a", "b")
    await rest.ok("PUT", _snapshot(rest), {"subscription": rest.subscription()})
    await rest.drain()
    sought = await rest.ok("POST", f"{rest.subscription()}/seek", {"snapshot": _snapshot(rest)})
    assert (sought["replayedMessages"], "notRetained" in sought) == (2, False)
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    assert (position["subscription"], position["undeliveredMessages"]) == (rest.subscription(), 2)
    assert position["shards"][0]["headSequence"] == 2
    assert 0 <= float(position["oldestUndeliveredMessageAge"].rstrip("s")) < 600
    assert "oldestOutstandingMessageAge" not in position
    assert [text(m) for m in await rest.pull()] == ["a", "b"]
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    assert position["oldestUndeliveredMessageAge"] == position["oldestOutstandingMessageAge"]
    await rest.ok("POST", f"{rest.subscription()}/seek", {"time": _in(timedelta(minutes=1))})
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    assert (position["undeliveredMessages"], "oldestUndeliveredMessageAge" in position) == (0, False)
    assert await rest.pull() == []
