"""Subscriptions over REST: create, get, patch, delete, detach and list, as Google's service does them (A2, A12)."""

from urllib.parse import quote

import pytest

from tests.fixtures.broker import Json, Rest, text

DAY = 86400


async def test_a_subscription_has_the_services_defaults(rest: Rest) -> None:
    """A2, A10: ten seconds, seven days, expiry after 31 days; an empty pushConfig says that it is pulled."""
    await rest.create_topic()
    expected = {
        "name": rest.subscription(),
        "topic": rest.topic(),
        "pushConfig": {},
        "ackDeadlineSeconds": 10,
        "messageRetentionDuration": "604800s",
        "expirationPolicy": {"ttl": "2678400s"},
        "state": "ACTIVE",
    }
    assert await rest.create_subscription() == expected
    assert await rest.ok("GET", rest.subscription()) == expected
    assert await rest.ok("GET", f"{rest.project}/subscriptions") == {"subscriptions": [expected]}


async def test_what_is_given_at_creation_is_given_back(rest: Rest) -> None:
    """A12: by the answer, and by a later get."""
    await rest.create_topic()
    fields = {
        "ackDeadlineSeconds": 600,
        "messageRetentionDuration": "86400s",
        "retainAckedMessages": True,
        "labels": {"team": "payments"},
        "expirationPolicy": {"ttl": "172800s"},
        "retryPolicy": {"minimumBackoff": "1s", "maximumBackoff": "1.500s"},
    }
    created = await rest.create_subscription(**fields)
    assert {name: created.get(name) for name in fields} == fields
    assert await rest.ok("GET", rest.subscription()) == created


async def test_creating_a_subscription_twice_is_a_conflict(rest: Rest) -> None:
    """A12: also with the same fields, as with Google's service."""
    await rest.create_topic()
    await rest.create_subscription()
    status, message = await rest.error("PUT", rest.subscription(), {"topic": rest.topic()})
    assert status == "ALREADY_EXISTS"
    assert message.endswith("(resource=sub).")


async def test_a_subscription_of_a_missing_topic_is_refused_naming_the_topic(rest: Rest) -> None:
    """A12: and nothing is created."""
    status, message = await rest.error("PUT", rest.subscription(), {"topic": rest.topic("missing")})
    assert status == "NOT_FOUND"
    assert message.endswith("(resource=missing).")
    assert (await rest.error("GET", rest.subscription()))[0] == "NOT_FOUND"


@pytest.mark.parametrize("topic", [None, "", "_deleted-topic_", "topic", "projects/p/subscriptions/sub"])
async def test_a_subscription_needs_the_name_of_a_topic(rest: Rest, topic: str | None) -> None:
    """A12: none, an empty one and a malformed one are refused."""
    body = {} if topic is None else {"topic": topic}
    assert (await rest.error("PUT", rest.subscription(), body))[0] == "INVALID_ARGUMENT"


async def test_a_missing_subscription_is_not_found_by_its_id(rest: Rest) -> None:
    """A12: by every call, with the id in the message."""
    ids = {"ackIds": ["x"]}
    calls = [
        ("GET", "", None), ("DELETE", "", None), ("POST", ":detach", None), ("POST", ":acknowledge", ids),
        ("POST", ":pull", {"maxMessages": 1}), ("POST", ":modifyAckDeadline", ids | {"ackDeadlineSeconds": 10}),
        ("PATCH", "", {"subscription": {}, "updateMask": "labels"}),
    ]  # fmt: skip
    for method, verb, body in calls:
        status, message = await rest.error(method, rest.subscription("missing") + verb, body)
        assert (status, "missing" in message) == ("NOT_FOUND", True), (method, verb)


@pytest.mark.parametrize("name", ["ab", "9abc", "a" * 256, "googsub", "Googsub", "a b c"])
async def test_an_illegal_subscription_id_is_refused(rest: Rest, name: str) -> None:
    """A12: as INVALID_ARGUMENT, whatever was sent in the URL."""
    await rest.create_topic()
    path = f"{rest.project}/subscriptions/{quote(name)}"
    assert (await rest.error("PUT", path, {"topic": rest.topic()}))[0] == "INVALID_ARGUMENT"


async def test_topic_and_subscription_may_be_in_different_projects(rest: Rest) -> None:
    """A2: messages go across."""
    await rest.create_topic()
    path = f"{rest.project}-b/subscriptions/sub"
    await rest.ok("PUT", path, {"topic": rest.topic()})
    await rest.publish("across")
    pulled = await rest.ok("POST", f"{path}:pull", {"maxMessages": 1, "returnImmediately": True})
    assert [text(m) for m in pulled["receivedMessages"]] == ["across"]


@pytest.mark.parametrize("seconds", [-1, 1, 9, 601])
async def test_an_ack_deadline_outside_10_to_600_seconds_is_refused(rest: Rest, seconds: int) -> None:
    """A7; Google's emulator takes 1 to 9."""
    await rest.create_topic()
    body = {"topic": rest.topic(), "ackDeadlineSeconds": seconds}
    status, message = await rest.error("PUT", rest.subscription(), body)
    assert status == "INVALID_ARGUMENT"
    assert message == (
        f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between 10 and 600 seconds."
    )


async def test_an_ack_deadline_of_zero_is_the_default(rest: Rest) -> None:
    """A7: 10 seconds, at creation and in a patch."""
    await rest.create_topic()
    assert (await rest.create_subscription(ackDeadlineSeconds=0))["ackDeadlineSeconds"] == 10
    body = {"subscription": {"ackDeadlineSeconds": 60}, "updateMask": "ackDeadlineSeconds"}
    assert (await rest.ok("PATCH", rest.subscription(), body))["ackDeadlineSeconds"] == 60
    body = {"subscription": {}, "updateMask": "ackDeadlineSeconds"}
    assert (await rest.ok("PATCH", rest.subscription(), body))["ackDeadlineSeconds"] == 10


@pytest.mark.parametrize(("seconds", "accepted"), [(599, 0), (600, 1), (31 * DAY, 1), (31 * DAY + 1, 0)])
async def test_retention_is_ten_minutes_to_31_days(rest: Rest, seconds: int, accepted: int) -> None:
    """A10; Google's emulator stops at 7 days."""
    await rest.create_topic()
    body = {"topic": rest.topic(), "messageRetentionDuration": f"{seconds}s", "expirationPolicy": {}}
    response = await rest.call("PUT", rest.subscription(), body)
    assert response.status_code == (200 if accepted else 400)


async def test_an_empty_expiration_policy_means_never(rest: Rest) -> None:
    """A12: it is printed, so that it differs from the default."""
    await rest.create_topic()
    assert (await rest.create_subscription(expirationPolicy={}))["expirationPolicy"] == {}
    assert (await rest.ok("GET", rest.subscription()))["expirationPolicy"] == {}


async def test_an_expiry_of_less_than_a_day_is_refused(rest: Rest) -> None:
    """A12: and the message is about the expiry, not about the retention that follows it."""
    await rest.create_topic()
    body = {"topic": rest.topic(), "expirationPolicy": {"ttl": "86399s"}, "messageRetentionDuration": "600s"}
    status, message = await rest.error("PUT", rest.subscription(), body)
    assert status == "INVALID_ARGUMENT"
    assert "The value for expiration duration is too small." in message
    # The retention follows a short expiry if it is not given; what is refused is what was given.
    status, message = await rest.error(
        "PUT", rest.subscription(), {"topic": rest.topic(), "expirationPolicy": {"ttl": "60s"}}
    )
    assert status == "INVALID_ARGUMENT"
    assert "expiration duration is too small. You passed 60s" in message


async def test_retention_beyond_the_expiry_is_refused(rest: Rest) -> None:
    """A10: the message names both durations."""
    await rest.create_topic()
    body = {"topic": rest.topic(), "expirationPolicy": {"ttl": "86400s"}, "messageRetentionDuration": "86401s"}
    status, message = await rest.error("PUT", rest.subscription(), body)
    assert status == "INVALID_ARGUMENT"
    assert "message retention duration (86401 seconds) cannot be greater than the TTL" in message


async def test_the_default_retention_gives_way_to_a_shorter_expiry(rest: Rest) -> None:
    """A10: who gives only an expiry is not refused for a default."""
    await rest.create_topic()
    created = await rest.create_subscription(expirationPolicy={"ttl": "86400s"})
    assert created["messageRetentionDuration"] == "86400s"


async def test_an_empty_retry_policy_has_defaults(rest: Rest) -> None:
    """A4: 10 s and 600 s."""
    await rest.create_topic()
    created = await rest.create_subscription(retryPolicy={})
    assert created["retryPolicy"] == {"minimumBackoff": "10s", "maximumBackoff": "600s"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"minimumBackoff": "601s"}, "The value for minimum_backoff is out of bounds."),
        ({"maximumBackoff": "601s"}, "maximum_backoff"),
        ({"minimumBackoff": "-1s"}, "minimum_backoff"),
        ({"minimumBackoff": "100s", "maximumBackoff": "50s"}, "maximum_backoff"),
        ({"minimumBackoff": "ten"}, "is not a duration"),
    ],
)
async def test_a_retry_policy_out_of_bounds_is_refused(rest: Rest, policy: Json, expected: str) -> None:
    """A4: the message says which bound."""
    await rest.create_topic()
    body = {"topic": rest.topic(), "retryPolicy": policy}
    status, message = await rest.error("PUT", rest.subscription(), body)
    assert status == "INVALID_ARGUMENT"
    assert expected in message


@pytest.mark.parametrize(
    "field",
    [
        {"bigqueryConfig": {"table": "p.d.t"}},
        {"cloudStorageConfig": {"bucket": "b"}},
        {"messageTransforms": [{"javascriptUdf": {"functionName": "f", "code": "function f(m) { return m; }"}}]},
        {"tags": {"123/environment": "production"}},
    ],
    ids=lambda field: next(iter(field)),
)
async def test_a_subscription_field_is_given_back_or_refused_by_name(rest: Rest, field: Json) -> None:
    """A12: never dropped."""
    await rest.create_topic()
    response = await rest.call("PUT", rest.subscription(), {"topic": rest.topic(), **field})
    (name,) = field
    if response.status_code == 200:
        assert response.json().get(name) == field[name] or name == "tags", "tags are input only"
    else:
        assert name in response.json()["error"]["message"]
        assert response.json()["error"]["status"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("field", [{"state": "RESOURCE_ERROR"}, {"topicMessageRetentionDuration": "3600s"}])
async def test_an_output_only_field_of_a_subscription_is_not_stored(rest: Rest, field: Json) -> None:
    """A12; Google's emulator stores it."""
    await rest.create_topic()
    response = await rest.call("PUT", rest.subscription(), {"topic": rest.topic(), **field})
    if response.status_code == 200:
        assert response.json()["state"] == "ACTIVE"
        assert "topicMessageRetentionDuration" not in response.json()


async def test_a_subscription_shows_the_retention_of_its_topic(rest: Rest) -> None:
    """A10: a field that only the broker sets."""
    await rest.create_topic(messageRetentionDuration="3600s")
    assert (await rest.create_subscription())["topicMessageRetentionDuration"] == "3600s"


async def test_subscriptions_are_listed_in_pages(rest: Rest) -> None:
    """A12: each once, and the last page has no token."""
    assert await rest.ok("GET", f"{rest.project}/subscriptions") == {}
    await rest.create_topic()
    for n in range(3):
        await rest.create_subscription(f"sub-{n}")
    first = await rest.ok("GET", f"{rest.project}/subscriptions?page_size=2")
    more = {"pageSize": 2, "pageToken": first["nextPageToken"]}
    second = await rest.ok("GET", f"{rest.project}/subscriptions", params=more)
    assert "nextPageToken" not in second
    names = {s["name"] for s in first["subscriptions"] + second["subscriptions"]}
    assert names == {rest.subscription(f"sub-{n}") for n in range(3)}


async def test_all_mutable_fields_are_updated(rest: Rest) -> None:
    """A12: labels and expirationPolicy too, which Google's emulator refuses."""
    await rest.create_topic()
    await rest.create_subscription()
    fields: Json = {
        "ackDeadlineSeconds": 20,
        "labels": {"a": "b"},
        "retainAckedMessages": True,
        "messageRetentionDuration": "700s",
        "expirationPolicy": {"ttl": "90000s"},
        "retryPolicy": {"minimumBackoff": "2s", "maximumBackoff": "3s"},
    }
    patched = await rest.ok("PATCH", rest.subscription(), {"subscription": fields, "updateMask": ",".join(fields)})
    assert {name: patched.get(name) for name in fields} == fields
    assert await rest.ok("GET", rest.subscription()) == patched


async def test_a_masked_field_that_is_absent_is_reset(rest: Rest) -> None:
    """A12: to its default, whichever spelling the mask has."""
    await rest.create_topic()
    plain = await rest.create_subscription()
    fields = {
        "labels": {"a": "b"},
        "retryPolicy": {},
        "retainAckedMessages": True,
        "messageRetentionDuration": "700s",
    }
    for mask in (",".join(fields), "labels,retry_policy,retain_acked_messages,message_retention_duration"):
        patched = await rest.ok("PATCH", rest.subscription(), {"subscription": fields, "updateMask": mask})
        assert patched != plain
        assert await rest.ok("PATCH", rest.subscription(), {"subscription": {}, "updateMask": mask}) == plain


@pytest.mark.parametrize("field", ["name", "topic", "filter", "enableMessageOrdering", "enable_message_ordering"])
async def test_an_immutable_field_in_the_mask_is_refused(rest: Rest, field: str) -> None:
    """A12: in the service's words, with the field."""
    await rest.create_topic()
    await rest.create_subscription()
    status, message = await rest.error("PATCH", rest.subscription(), {"subscription": {}, "updateMask": field})
    assert status == "INVALID_ARGUMENT"
    assert message.startswith("Invalid update_mask provided in the UpdateSubscriptionRequest: the ")
    assert message.endswith("field in the Subscription is not mutable.")


async def test_an_unknown_field_in_the_mask_is_refused(rest: Rest) -> None:
    """A12: in the service's words, with the field."""
    await rest.create_topic()
    await rest.create_subscription()
    status, message = await rest.error("PATCH", rest.subscription(), {"subscription": {}, "updateMask": "bogus"})
    assert status == "INVALID_ARGUMENT"
    assert message == (
        "Invalid update_mask provided in the UpdateSubscriptionRequest: 'bogus' is not a known Subscription field."
        " Note that field paths must be of the form 'push_config' rather than 'pushConfig'."
    )


async def test_an_update_without_a_mask_is_refused(rest: Rest) -> None:
    """A12: no field is guessed from the body."""
    await rest.create_topic()
    await rest.create_subscription()
    status, message = await rest.error("PATCH", rest.subscription(), {"subscription": {"labels": {}}})
    assert status == "INVALID_ARGUMENT"
    assert "update_mask in the UpdateSubscriptionRequest must be set" in message


async def test_a_deleted_subscription_is_gone_with_its_backlog(rest: Rest) -> None:
    """A2: one of the same name is new."""
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("lost")
    assert await rest.ok("DELETE", rest.subscription()) == {}
    assert (await rest.error("DELETE", rest.subscription()))[0] == "NOT_FOUND"
    await rest.create_subscription()
    assert await rest.pull() == []


async def test_a_detached_subscription_drops_its_backlog_and_refuses_pulls(rest: Rest) -> None:
    """A2: Google's emulator does not have detach."""
    await rest.create_topic()
    await rest.create_subscription()
    await rest.create_subscription("other")
    await rest.publish("message")
    received = await rest.pull()
    assert await rest.ok("POST", f"{rest.subscription()}:detach") == {}
    assert (await rest.ok("GET", rest.subscription()))["detached"] is True
    status, message = await rest.error("POST", f"{rest.subscription()}:pull", {"maxMessages": 1})
    assert status == "FAILED_PRECONDITION"
    assert "detached" in message
    ack = await rest.call("POST", f"{rest.subscription()}:acknowledge", {"ackIds": [received[0]["ackId"]]})
    assert ack.status_code in {200, 400}
    assert [text(m) for m in await rest.drain("other")] == ["message"], "other subscriptions keep theirs"
    assert await rest.ok("DELETE", rest.subscription()) == {}


async def test_an_empty_push_config_keeps_it_a_pull_subscription(rest: Rest) -> None:
    """A2: by modifyPushConfig, by patch and at creation."""
    await rest.create_topic()
    await rest.create_subscription(pushConfig={})
    await rest.publish("kept")
    for body in ({}, {"pushConfig": {}}, {"pushConfig": {"pushEndpoint": ""}}, {"push_config": {}}):
        assert await rest.ok("POST", f"{rest.subscription()}:modifyPushConfig", body) == {}
    body = {"subscription": {"pushConfig": {}}, "updateMask": "pushConfig"}
    assert (await rest.ok("PATCH", rest.subscription(), body))["pushConfig"] == {}
    assert [text(m) for m in await rest.drain()] == ["kept"]


@pytest.mark.parametrize("white_space", [" ", "   ", " \t\r\n "])
async def test_a_filter_of_white_space_is_no_filter(rest: Rest, white_space: str) -> None:
    """`filter : [expression]`: https://google.aip.dev/160 has the grammar."""
    await rest.create_topic()
    await rest.create_subscription(filter=white_space)
    assert "filter" not in await rest.ok("GET", rest.subscription())
    await rest.publish("delivered")
    assert len(await rest.pull()) == 1
