"""What callers learn of projects and of themselves where nobody is asked who calls; extensions, over REST alone."""

from tests.fixtures.broker import Rest


async def test_projects_are_listed_page_by_page_each_once(rest: Rest) -> None:
    projects = [f"{rest.project}{suffix}" for suffix in ("", "-x", "0", "x")]
    for project in projects:
        await rest.ok("PUT", f"{project}/topics/orders")
    found, query = list[str](), {"pageSize": "2"}
    while True:
        answer = await rest.ok("GET", "projects", params=query)
        found += [project["name"] for project in answer.get("projects", [])]
        if "nextPageToken" not in answer:
            break
        query["pageToken"] = answer["nextPageToken"]
    assert found == sorted(set(found))
    assert [name for name in found if name.startswith(rest.project)] == sorted(projects)


async def test_a_caller_who_is_not_asked_has_no_principal_and_may_do_anything(rest: Rest) -> None:
    await rest.create_topic()
    assert await rest.ok("GET", "whoami") == {"credential": {"kind": "NONE"}}
    body = {"permissions": ["pubsub.topics.get"], "resources": [rest.topic()]}
    assert await rest.ok("POST", f"{rest.project}:testIamPermissions", body) == {
        "permissions": ["pubsub.topics.get"],
        "resources": [{"name": rest.topic(), "permissions": ["pubsub.topics.get"]}],
    }
    asked = {"principal": "user:a@b.c", "permission": "pubsub.topics.get", "resource": rest.topic()}
    assert await rest.ok("POST", f"{rest.project}:explainAccess", asked) == {
        "access": "GRANTED",
        "explanation": "Authentication is off: anybody may do anything.",
    }
    assert (await rest.error("POST", f"{rest.project}:explainAccess", {"principal": "a"}))[0] == "INVALID_ARGUMENT"


async def test_where_nobody_is_asked_who_calls_links_to_the_console_have_no_token(rest: Rest) -> None:
    assert await rest.ok("POST", "signInLinks", {}) == {"path": "/console/"}
    assert (await rest.error("POST", "signInLinks", {"ttl": "1s"}))[0] == "INVALID_ARGUMENT"
    await rest.create_topic("orders")
    await rest.create_subscription("hook", topic="orders", pushConfig={"pushEndpoint": "http://127.0.0.1:9/hook"})
    hook = rest.subscription("hook")
    assert (await rest.error("POST", f"{hook}:createShareLink", {}))[0] == "FAILED_PRECONDITION"
    assert (await rest.error("POST", f"{hook}:createShareLink", {"ttl": "31d"}))[0] == "INVALID_ARGUMENT"
    assert await rest.ok("GET", f"{hook}/shareLinks") == {}
    assert (await rest.error("DELETE", f"{hook}/shareLinks/none"))[0] == "NOT_FOUND"
    assert (await rest.error("GET", f"{rest.subscription('none')}/shareLinks"))[0] == "NOT_FOUND"


async def test_a_search_says_why_it_has_found_what_it_has_found(rest: Rest) -> None:
    await rest.create_topic("orders", labels={"team": "billing"})
    await rest.create_subscription("billing", topic="orders")
    [message_id] = await rest.publish("a", topic="orders")
    topic, subscription = rest.topic("orders"), rest.subscription("billing")
    expected = [
        (
            "billing",
            [("SUBSCRIPTION", subscription, "name", "billing"), ("TOPIC", topic, "labels", "team=billing")],
        ),
        (message_id, [("MESSAGE", f"{topic}/messages/{message_id}", "messageId", message_id)]),
        ("nothing", []),
    ]
    for text, results in expected:
        answer = await rest.ok("GET", f"{rest.project}:search", params={"q": text})
        assert "nextPageToken" not in answer
        assert {"MESSAGE", "TOPIC", "POLICY"} <= set(answer["searchedKinds"])
        found = answer.get("results", [])
        assert [tuple(each[key] for key in ("kind", "name", "matchedField", "matchedValue")) for each in found] == (
            results
        )
