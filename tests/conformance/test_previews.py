"""Destructive calls say first what they would do, and are refused if that has changed; extensions."""

import pytest

from tests.features.previews.previewed_calls import destroy
from tests.fixtures.broker import Json, Rest

OF_MESSAGES = {
    "delete a subscription": "DELETE {sub}",
    "detach": "POST {sub}:detach",
    "purge a subscription": "POST {sub}:purge",
    "purge a topic": "POST {topic}:purge",
    "seek": "POST {sub}:seek",
    "discard": "POST {sub}:discard",
    "retract": "POST {topic}:retract",
}


async def _begin(rest: Rest, call: str) -> tuple[str, Json]:
    """Publish three messages; return a call about them and its fields."""
    await rest.create_topic()
    await rest.create_subscription()
    ids = await rest.publish("1", "2", "3")
    fields: dict[str, Json] = {
        "seek": {"time": "2100-01-01T00:00:00Z"},
        "discard": {"messageIds": ids},
        "retract": {"messageIds": ids},
    }
    return OF_MESSAGES[call].format(sub=rest.subscription(), topic=rest.topic()), fields.get(call, {})


@pytest.mark.parametrize("call", OF_MESSAGES)
async def test_a_preview_has_the_count_and_changes_nothing_and_the_call_is_held_to_it(
    rest: Rest, call: str
) -> None:
    path, fields = await _begin(rest, call)
    preview = (await destroy(rest, path, **fields, validateOnly=True)).json()
    assert (preview["validateOnly"], preview["count"], preview["unit"]) == (True, 3, "message")
    assert preview["asOf"].endswith("Z")
    for limits in ({"expectedCount": 2}, {"expectedCount": 4, "tolerancePercent": 10}):
        refused = await destroy(rest, path, **fields, **limits)
        assert (refused.status_code, refused.json()["error"]["status"]) == (409, "ABORTED")
    assert await rest.backlog() == 3
    done = await destroy(rest, path, **fields, expectedCount=4, tolerancePercent=25)
    assert done.status_code == 200, done.text


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"expectedCount": -1}, "expectedCount"),
        ({"tolerancePercent": 1}, "tolerancePercent needs expectedCount"),
        ({"expectedCount": 3, "tolerancePercent": 101}, "tolerancePercent"),
        ({"asOf": "yesterday"}, "asOf"),
    ],
)
async def test_limits_that_cannot_be_are_refused(rest: Rest, limits: Json, said: str) -> None:
    await _begin(rest, "detach")
    for call in ("delete a subscription", "detach", "purge a subscription"):
        path = OF_MESSAGES[call].format(sub=rest.subscription())
        refused = await destroy(rest, path, **limits)
        assert (refused.status_code, refused.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
        assert said in refused.text
    assert await rest.backlog() == 3


async def test_a_topic_is_deleted_with_what_is_known_to_refer_to_it(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="600s")
    await rest.create_subscription()
    await rest.publish("1", "2")
    path = f"DELETE {rest.topic()}"
    preview = (await destroy(rest, path, validateOnly=True)).json()
    assert (preview["count"], preview["referenceCount"]) == (2, 1)
    assert preview["referredToBy"] == [{"name": rest.subscription(), "kind": "SUBSCRIPTION"}]
    assert (await destroy(rest, path, expectedCount=1)).status_code == 409
    assert (await destroy(rest, path, expectedCount=2, asOf=preview["asOf"])).status_code == 200
    assert (await rest.error("GET", rest.topic()))[0] == "NOT_FOUND"


async def test_nothing_newer_is_taken_by_its_name(rest: Rest) -> None:
    """A preview from before its creation was of another resource with the same name."""
    await rest.create_topic()
    snapshot = f"{rest.project}/snapshots/snapshot"
    await rest.create_subscription()
    await rest.ok("PUT", snapshot, {"subscription": rest.subscription()})
    refused = await destroy(rest, f"DELETE {snapshot}", asOf="2020-01-01T00:00:00Z")
    assert (refused.status_code, refused.json()["error"]["status"]) == (409, "ABORTED")
    assert (await rest.ok("GET", snapshot))["name"] == snapshot
