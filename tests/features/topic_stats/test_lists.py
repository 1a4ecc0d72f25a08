"""Lists of topics with `view=STATS`, of a running broker."""

from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest, eventually

pytestmark = pytest.mark.own_broker(lag_interval_seconds=0.1)


async def test_a_list_has_figures_only_if_it_is_asked_for_them(rest: Rest) -> None:
    await rest.create_topic("orders", labels={"team": "shop"})
    await rest.create_subscription("billing", topic="orders")
    await rest.publish("hello", topic="orders")
    path = f"{rest.project}/topics"
    plain = (await rest.call("GET", path)).content
    assert b"stats" not in plain
    assert (await rest.call("GET", f"{path}?view=BASIC")).content == plain
    assert (await rest.call("GET", f"{path}?view=")).content == plain
    found: dict[str, Json] = {}

    async def is_sampled() -> bool:
        [topic] = (await rest.ok("GET", path, params={"view": "STATS"}))["topics"]
        found["topic"] = topic
        return bool(topic["stats"]["worstSubscription"]["deliveryState"] == "RECENT")

    await eventually(is_sampled)
    stats = found["topic"].pop("stats")
    assert found["topic"] == (await rest.ok("GET", path))["topics"][0]
    assert stats == {
        "publishedMessagesPerSecond": stats["publishedMessagesPerSecond"],
        "retainedMessagesEstimate": 1,
        "retainedBytesEstimate": 5,
        "subscriptionCount": 1,
        "worstSubscription": {
            "subscription": rest.subscription("billing"),
            "deliveryState": "RECENT",
            "verdict": "All messages are less than 10s old.",
        },
    }
    # What was read can be written: the figures are output only.
    changed: dict[str, Any] = {"topic": found["topic"] | {"stats": stats, "labels": {"team": "ops"}}}
    answer = await rest.ok("PATCH", rest.topic("orders"), changed | {"updateMask": "labels"})
    assert (answer["labels"], "stats" in answer) == ({"team": "ops"}, False)


@pytest.mark.parametrize("view", ["stats", "FULL", "x" * 1000])
async def test_an_unknown_view_is_refused(rest: Rest, view: str) -> None:
    code, text = await rest.error("GET", f"{rest.project}/topics", params={"view": view})
    assert (code, text) == ("INVALID_ARGUMENT", f"view is one of BASIC, STATS (view={view[:100]}).")
