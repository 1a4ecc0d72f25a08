"""What requests of all of Google's APIs can say in their query and headers (A12): docs/decisions/0074."""

from urllib.parse import quote

import pytest

from broker.api.rest.query_parameters import SYSTEM_PARAMETERS
from tests.fixtures.broker import Json, Rest, message

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def test_a_post_may_mean_another_method(rest: Rest) -> None:
    """Google's clients for Java, and whatever is behind a proxy that lets GET and POST alone pass."""
    created = await rest.ok("POST", rest.topic(), {"labels": {"a": "b"}}, headers={"X-HTTP-Method-Override": "PUT"})
    patch: Json = {"topic": {"labels": {"c": "d"}}, "updateMask": "labels"}
    changed = await rest.ok("POST", rest.topic(), patch, headers={"X-HTTP-Method-Override": "patch"})
    assert changed == created | {"labels": {"c": "d"}}
    assert await rest.ok("POST", rest.topic(), headers={"X-HTTP-Method-Override": "GET"}) == changed
    assert await rest.ok("PATCH", rest.topic(), patch, headers={"X-HTTP-Method-Override": "PATCH"}) == changed
    assert await rest.ok("POST", rest.topic(), headers={"X-HTTP-Method-Override": "DELETE"}) == {}
    assert (await rest.error("GET", rest.topic()))[0] == "NOT_FOUND"


async def test_a_long_get_may_have_its_query_in_the_body_of_a_post(rest: Rest) -> None:
    for name in ("one-topic", "two-topic"):
        await rest.create_topic(name)
    listed = await rest.ok("GET", f"{rest.project}/topics?pageSize=1")
    headers = {"X-HTTP-Method-Override": "GET"} | FORM
    sent = await rest.client.post(f"/v1/{rest.project}/topics", content="pageSize=1", headers=headers)
    assert sent.json() == listed
    assert len(listed["topics"]) == 1


async def test_no_other_method_may_mean_another_one(rest: Rest) -> None:
    await rest.create_topic()
    code, said = await rest.error("GET", rest.topic(), headers={"X-HTTP-Method-Override": "DELETE"})
    assert (code, "X-HTTP-Method-Override=DELETE" in said) == ("INVALID_ARGUMENT", True)
    assert (await rest.error("POST", rest.topic(), headers={"X-HTTP-Method-Override": "NONE"}))[0] == "NOT_FOUND"
    assert await rest.ok("GET", rest.topic())


async def test_an_update_mask_in_parts_is_one_mask(rest: Rest) -> None:
    await rest.create_topic()
    found = await rest.create_subscription()
    wanted: Json = {"ackDeadlineSeconds": 33, "labels": {"x": "y"}}
    for query in (
        "updateMask=ackDeadlineSeconds&updateMask=labels",
        "updateMask=labels&update_mask=ackDeadlineSeconds",
    ):
        changed = await rest.ok("PATCH", f"{rest.subscription()}?{query}", {"subscription": wanted})
        assert changed == found | wanted
        wanted = {"ackDeadlineSeconds": wanted["ackDeadlineSeconds"] + 1, "labels": {"x": "z"}}


async def test_any_other_parameter_has_one_value(rest: Rest) -> None:
    code, said = await rest.error("GET", f"{rest.project}/topics?pageSize=1&pageSize=2")
    assert (code, "pageSize" in said) == ("INVALID_ARGUMENT", True)
    assert await rest.ok("GET", f"{rest.project}/topics?pageSize=1&pageSize=1") == {}


@pytest.mark.parametrize("way", ["fields", "$fields", "%24fields", "header"])
async def test_a_field_mask_makes_the_answer_a_part(rest: Rest, way: str) -> None:
    await rest.create_topic(labels={"team": "shop", "a_b": "c"}, messageRetentionDuration="600s")
    await rest.create_topic("other")

    async def masked(method: str, path: str, mask: str, body: Json | None = None) -> Json:
        if way == "header":
            return await rest.ok(method, path, body, headers={"X-Goog-FieldMask": mask})
        return await rest.ok(method, f"{path}?{way}={quote(mask)}", body)

    assert await masked("GET", rest.topic(), "name") == {"name": rest.topic()}
    whole = await rest.ok("GET", rest.topic())
    for mask in ("*", "", "name,labels,message_retention_duration"):
        assert await masked("GET", rest.topic(), mask) == whole
    assert await masked("GET", rest.topic(), "labels.a_b,labels/team") == {"labels": whole["labels"]}
    for mask in ("topics.name", "topics/name", "topics(name)", "topics(name),topics.name,nextPageToken"):
        listed = await masked("GET", f"{rest.project}/topics", mask)
        assert listed == {"topics": [{"name": rest.topic("other")}, {"name": rest.topic()}]}, mask
    await rest.create_subscription()
    ids = await masked("POST", f"{rest.topic()}:publish", "messageIds", {"messages": [message("x", {"k": "v"})]})
    assert len(ids["messageIds"]) == 1
    body: Json = {"maxMessages": 1}
    pulled = await masked("POST", f"{rest.subscription()}:pull", "receivedMessages(message(attributes/k))", body)
    assert pulled == {"receivedMessages": [{"message": {"attributes": {"k": "v"}}}]}


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("nam", "'nam' is no field of Topic, which has: "),
        ("name.first", "'name' of Topic can only be named as a whole"),
        ("messageRetentionDuration.seconds", "can only be named as a whole"),
        ("schemaSettings.bogus", "'bogus' is no field of SchemaSettings, which has: encoding, "),
        ("name,", "the name of a field is expected, not 'the end'"),
        ("labels(a", "a parenthesis is not closed"),
        ("labels)", "a comma is expected before ')'"),
        ("na$me", "it has characters that no field's name has"),
        ("(".join("a" * 30), "it is nested deeper than 16 levels"),
        ("a" * 5000, "it has 5000 characters, the maximum is 4096"),
    ],
)
async def test_a_field_mask_that_leads_nowhere_is_refused_before_anything_is_done(
    rest: Rest, mask: str, said: str
) -> None:
    for options in ({"headers": {"X-Goog-FieldMask": mask}}, {"params": {"fields": mask}}):
        response = await rest.client.put(f"/v1/{rest.topic()}", json={}, **options)
        assert response.status_code == 400
        assert said in response.json()["error"]["message"]
    assert (await rest.error("GET", rest.topic()))[0] == "NOT_FOUND"


async def test_a_field_mask_may_name_what_the_broker_adds_to_an_answer(rest: Rest) -> None:
    await rest.create_topic(extensions={"deduplication": {"window": "600s"}})
    await rest.create_subscription()
    await rest.ok("POST", f"{rest.subscription()}:pause", {"reason": "Maintenance."})
    paused = await rest.ok("GET", f"{rest.subscription()}?fields=pause.pausedReason,extensions")
    assert paused == {"pause": {"pausedReason": "Maintenance."}}
    assert "deduplication" in (await rest.ok("GET", f"{rest.topic()}?fields=extensions,frozen"))["extensions"]
    again = {"messages": [message("x", {"broker-dedup-id": "1"})] * 2}
    assert await rest.ok("POST", f"{rest.topic()}:publish?fields=repeats", again) == {"repeats": [1]}


async def test_an_answer_is_printed_as_is_asked(rest: Rest) -> None:
    await rest.create_topic()

    async def printed(query: str) -> str:
        return (await rest.client.get(f"/v1/{rest.topic()}?{query}")).text

    pretty, compact = f'{{\n  "name": "{rest.topic()}"', f'{{"name":"{rest.topic()}"'
    for query in ("", "prettyPrint=true", "$prettyPrint=TRUE", "alt=json"):
        assert (await printed(query)).startswith(pretty), query
    for query in ("prettyPrint=false", "$prettyPrint=false", "%24prettyPrint=0"):
        assert (await printed(query)).startswith(compact), query
    error = await rest.client.get(f"/v1/{rest.topic('none')}?prettyPrint=false&fields=name")
    assert error.text.startswith('{"error":{"code":404,')
    published = f"/v1/{rest.topic()}:publish?prettyPrint=true"
    assert (await rest.client.post(published, json={"messages": [message("x")]})).text.startswith(
        '{\n  "messageIds"'
    )


async def test_enums_may_be_numbers(rest: Rest) -> None:
    """As Google's generated clients for REST ask for them."""
    await rest.create_topic()
    found = await rest.create_subscription()
    assert found["state"] == "ACTIVE"
    for query in ("$alt=json;enum-encoding=int", "%24alt=json%3Benum-encoding%3Dint"):
        assert await rest.ok("GET", f"{rest.subscription()}?{query}") == found | {"state": 1}
        [listed] = (await rest.ok("GET", f"{rest.project}/subscriptions?{query}"))["subscriptions"]
        assert listed["state"] == 1


@pytest.mark.parametrize(
    "query",
    ["alt=proto", "$alt=media", "alt=sse", "alt=json;x=y", "callback=f", "$callback=f", "prettyPrint=maybe"],
)
async def test_forms_of_answers_that_there_are_not_are_refused_by_name(rest: Rest, query: str) -> None:
    code, said = await rest.error("GET", f"{rest.project}/topics?{query}")
    assert (code, query[:60] in said) == ("INVALID_ARGUMENT", True), said


async def test_what_says_nothing_of_the_answer_has_no_effect(rest: Rest) -> None:
    await rest.create_topic()
    headers = {
        "X-Goog-Api-Client": "gl-php/8.3.14 gapic/2.18.1",
        "X-Goog-Api-Key": "none",
        "X-Goog-Api-Version": "2026-01-01",
        "X-Goog-Quota-User": "somebody",
        "X-Goog-Request-Params": "topic=projects%2Fother%2Ftopics%2Fother",
        "X-Goog-Request-Reason": "a test",
        "X-Goog-User-Project": "another-project",
        "X-Goog-Upload-Protocol": "multipart",
    }
    query = "$.xgafv=2&$ct=text/plain&quotaUser=u&userProject=p&uploadType=media&upload_protocol=raw&passwd=x&key=k"
    assert await rest.ok("GET", f"{rest.topic()}?{query}", headers=headers) == await rest.ok("GET", rest.topic())


async def test_a_field_of_a_field_is_named_by_its_path_in_the_query(rest: Rest) -> None:
    await rest.create_topic()
    path = f"{rest.topic()}:getIamPolicy?options.requestedPolicyVersion"
    assert await rest.ok("GET", f"{path}=3") == {"etag": "ACAB"}
    assert (await rest.error("GET", f"{path}=7"))[0] == "INVALID_ARGUMENT"
    assert (await rest.error("GET", f"{rest.topic()}:getIamPolicy?options.bogus=7"))[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "topics", "pagesize"),
        ("GET", "topics/topic", "x"),
        ("DELETE", "topics/topic", "force"),
        ("DELETE", "topics/topic", "validateonly"),
        ("POST", "subscriptions/sub:detach", "validateOnly"),
        ("POST", "topics/topic:publish", "validateOnly"),
        ("POST", "subscriptions/sub:pull", "max"),
        ("POST", "subscriptions/sub:setFilter", "validateonly"),
        ("POST", "subscriptions/sub:setFilter", "validateOnly"),
        ("POST", "subscriptions/sub:purge", "validate_only"),
        ("PATCH", "quotas", "updateMask"),
        ("GET", "topics", "$pageSize"),
        ("GET", "topics", ""),
    ],
)
async def test_a_query_parameter_that_a_method_does_not_have_is_refused_before_anything_is_done(
    rest: Rest, method: str, path: str, name: str
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    body: Json | None = {"filter": "attributes:a"} if path.endswith(":setFilter") else None
    code, said = await rest.error(method, f"{rest.project}/{path}?{name}=true", body)
    assert code == "INVALID_ARGUMENT"
    assert said.startswith(
        f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter. '
        f"Field '{name}' could not be found in request message. "
    )
    assert "filter" not in await rest.ok("GET", rest.subscription())


async def test_a_refused_query_parameter_is_told_with_those_that_the_method_has(rest: Rest) -> None:
    said = (await rest.error("GET", f"{rest.project}/topics?pagesize=1&secret=hidden"))[1]
    assert said.endswith("The query parameters of this method are: pageSize, pageToken, view.")
    said = (await rest.error("POST", f"{rest.subscription()}:setFilter?secret=hidden", {"filter": ""}))[1]
    assert said.endswith("has no query parameters; the fields of its request, if any, are in the body.")
    assert "hidden" not in said
    sent = await rest.client.post(
        f"/v1/{rest.project}/topics", content="x=1", headers={"X-HTTP-Method-Override": "GET"} | FORM
    )
    assert (sent.status_code, 'Unknown name "x"' in sent.json()["error"]["message"]) == (400, True)


@pytest.mark.parametrize("name", sorted(SYSTEM_PARAMETERS - {"alt", "callback", "fields", "prettyPrint"}))
async def test_system_parameters_are_those_of_every_method(rest: Rest, name: str) -> None:
    await rest.create_topic()
    for spelling in (name, f"${name}", f"%24{name}"):
        assert await rest.ok("GET", f"{rest.topic()}?{spelling}=2")


async def test_fields_of_a_request_that_is_the_body_may_be_in_the_query(rest: Rest) -> None:
    """The body goes first."""
    await rest.create_topic()
    query = f"topic={rest.topic()}&ackDeadlineSeconds=20&retry_policy.minimumBackoff=7s"
    created = await rest.ok("PUT", f"{rest.subscription()}?{query}", {"ackDeadlineSeconds": 30})
    assert (created["topic"], created["ackDeadlineSeconds"]) == (rest.topic(), 30)
    assert created["retryPolicy"]["minimumBackoff"] == "7s"
    assert await rest.ok("POST", f"{rest.subscription()}:seek?time=2100-01-01T00:00:00Z") != {}
