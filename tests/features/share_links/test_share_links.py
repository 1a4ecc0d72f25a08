"""Share links: what their holders see, what they cannot, and what ends them."""

import hashlib
import re
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import select, text

from broker.access.share_links.share_link import MAX_LINKS
from broker.access.share_links.share_link_rows import delete_ended_share_links
from broker.console.routes import PAGES
from broker.db.schema.tables import share_links
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json, eventually
from tests.fixtures.push_sink import PushSink

HOOK, OTHER = "projects/guarded/subscriptions/hook", "projects/guarded/subscriptions/other"
PAGE = f"/console/shared/{HOOK}/pushAttempts"
COOKIE = "broker_share"


@pytest.fixture
async def world(database_url: str, push_sink: PushSink) -> AsyncIterator[Guarded]:
    async with guarded(database_url, console="on", audit="all") as world:
        await world.ok("PUT", f"{world.project}/topics/orders", {})
        for name in (HOOK, OTHER):
            body = {"topic": f"{world.project}/topics/orders", "pushConfig": {"pushEndpoint": push_sink.url}}
            await world.ok("PUT", name, body)
        await world.ok("PUT", f"{world.project}/subscriptions/pulled", {"topic": f"{world.project}/topics/orders"})
        yield world


@pytest.fixture
async def holder(world: Guarded) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody without a credential, in a browser of their own."""
    async with httpx.AsyncClient(base_url=world.client.base_url) as client:
        yield client


async def create(world: Guarded, key: Json | None = None, **body: object) -> Json:
    return await world.ok("POST", f"{HOOK}:createShareLink", body, headers=world.bearer(key))


def token_of(link: Json) -> str:
    assert link["path"].startswith("/console/shared#")
    return str(link["path"].partition("#")[2])


async def open_link(holder: httpx.AsyncClient, link: Json) -> httpx.Response:
    return await holder.post("/console/shared", data={"token": token_of(link)})


async def test_a_link_shows_the_pushes_of_its_subscription(world: Guarded, holder: httpx.AsyncClient) -> None:
    link = await create(world, ttl="3600s")
    assert link["permissions"] == ["VIEW_PUSH_ATTEMPTS"]
    assert (await holder.get("/console/shared")).status_code == 200
    opened = await open_link(holder, link)
    assert (opened.status_code, opened.headers["location"]) == (303, PAGE)
    [cookie] = opened.headers.get_list("set-cookie")
    assert "HttpOnly" in cookie
    assert f"Path=/console/shared/{HOOK};" in cookie
    assert "Max-Age=3600" in cookie or "Max-Age=3599" in cookie
    page = await holder.get(PAGE)
    assert page.status_code == 200
    assert "Pushes of hook" in page.text
    assert "by a link" in page.text
    assert "Search this project" not in page.text
    assert 'href="/console/projects' not in page.text


async def test_the_same_page_is_there_for_who_may_see_the_subscription(world: Guarded) -> None:
    made = await world.ok("POST", f"{world.project}/apiKeys", {"roles": ["roles/editor"]})
    await world.client.post("/console/login", data={"credential": made["keyString"]})
    page = await world.client.get(f"/console/{HOOK}/pushAttempts")
    assert page.status_code == 200
    assert "broker push attempts hook" in page.text


# --- what a holder cannot see -----------------------------------------------------------------------------------


async def test_a_holder_sees_no_other_page(world: Guarded, holder: httpx.AsyncClient) -> None:
    """The cookie is sent to every page here, as browsers do not."""
    token = token_of(await create(world, permissions=["RESEND", "RECOVER"]))
    ids = {"project": "guarded", "subscription": "hook", "topic": "orders", "message": "1", "operation": "o"}
    for name in (COOKIE, "broker_session"):
        headers = {"Cookie": f"{name}={token}"}
        for route in PAGES:
            path = route.path.format_map(_Default(ids))
            answer = await holder.get(f"/console/{path}", headers=headers, params={"q": "orders"})
            assert answer.status_code == 303, path
            assert answer.headers["location"].startswith("/console/login"), path
            if name == COOKIE and f"/console/shared/{path}" != PAGE:
                shared = await holder.get(f"/console/shared/{path}", headers=headers)
                assert shared.status_code in (401, 404), path


class _Default(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "x"


@pytest.mark.parametrize(
    "path",
    [
        f"/console/shared/{OTHER}/pushAttempts",
        "/console/shared/projects/elsewhere/subscriptions/hook/pushAttempts",
        f"/console/shared/{HOOK}",
        f"/console/shared/{HOOK}/messages",
        f"/console/shared/{HOOK}/pushAttempts/",
        f"/console/shared/{HOOK}/../other/pushAttempts",
        f"/console/shared/{HOOK}%2F..%2Fother/pushAttempts",
        f"/console/shared/{HOOK}:testPush/pushAttempts",
        f"/console/shared/{HOOK}%3Fx/pushAttempts",
        "/console/shared/",
    ],
)
async def test_a_link_opens_the_page_of_one_subscription(world: Guarded, path: str) -> None:
    token = token_of(await create(world))
    async with httpx.AsyncClient(base_url=world.client.base_url) as holder:
        answer = await holder.get(path, headers={"Cookie": f"{COOKIE}={token}"}, follow_redirects=True)
    assert answer.status_code in (401, 404), path
    assert "Requests by minute" not in answer.text


async def test_the_token_of_a_link_is_no_credential_of_the_api(world: Guarded, holder: httpx.AsyncClient) -> None:
    token = token_of(await create(world, permissions=["RESEND", "RECOVER"]))
    for headers in (
        {"Authorization": f"Bearer {token}"},
        {"X-Goog-Api-Key": token},
        {"Cookie": f"{COOKIE}={token}; broker_session={token}"},
    ):
        for method, path in [
            ("GET", HOOK),
            ("GET", f"{HOOK}:pushStatus"),
            ("GET", f"{HOOK}:pushAttempts"),
            ("POST", f"{HOOK}:resend"),
            ("GET", "whoami"),
            ("POST", "signInLinks"),
            ("GET", f"{HOOK}/shareLinks"),
        ]:
            answer = await world.call(method, path, headers=headers)
            assert answer.status_code == 401, (headers, path)
    assert (await holder.post("/console/login", data={"credential": token})).status_code == 401
    assert (await holder.post("/console/link", data={"token": token})).status_code == 401


async def test_a_holder_makes_the_calls_of_the_page_and_no_others(world: Guarded) -> None:
    """Even where a page would ask for more on behalf of a holder: the gate refuses by the name of the call."""
    access, token = world.broker.guard.access, token_of(await create(world, permissions=["RECOVER"]))
    assert access is not None
    holder = (await access.link_holders.find(token)).caller
    assert holder.calls == {"GetPushStatus", "ListPushAttempts", "ListPushFailures", "RecoverPushes"}
    for permission in ("pubsub.subscriptions.delete", "pubsub.subscriptions.setIamPolicy", "pubsub.topics.publish"):
        allowed = await access.authorizer.allowed(holder, [permission], [HOOK, OTHER, world.project])
        assert not any(allowed.values()), permission


# --- what a holder may do ---------------------------------------------------------------------------------------


async def push_failure(world: Guarded, sink: PushSink, name: str = HOOK) -> str:
    """Publish a message that the endpoint refuses until it is mended; return its id once a failure is on record."""
    await world.ok("POST", f"{name}:modifyPushConfig", {"pushConfig": {"pushEndpoint": f"{sink.url}/status/503"}})
    published = await world.ok(
        "POST", f"{world.project}/topics/orders:publish", {"messages": [{"data": "YQ=="}, {"data": "Yg=="}]}
    )

    async def on_record() -> bool:
        found = await world.ok("GET", f"{name}:pushFailures")
        return {one["messageId"] for one in found.get("pushFailures", ())} >= set(published["messageIds"])

    await eventually(on_record, seconds=120)
    return str(published["messageIds"][0])


async def test_a_link_that_permits_it_resends_a_message_that_was_pushed(
    world: Guarded, holder: httpx.AsyncClient, push_sink: PushSink
) -> None:
    message_id = await push_failure(world, push_sink)
    mended = {"pushConfig": {"pushEndpoint": f"{push_sink.url}/status/200"}}
    await world.ok("POST", f"{HOOK}:modifyPushConfig", mended)
    await eventually(lambda: acknowledged(world, message_id), seconds=120)
    await open_link(holder, await create(world, permissions=["RESEND"]))
    page = await holder.get(PAGE)
    address = f"{PAGE}:resend?messageIds={message_id}"
    assert f'href="{address}"' in page.text
    assert ":recover" not in page.text
    assert "pubsub.subscriptions" not in page.text
    form = await holder.get(address)
    assert (form.status_code, "Resend the messages</button>" in form.text) == (200, True)
    assert "/console/projects" not in form.text
    assert "broker push" not in form.text
    done = await holder.post(f"{PAGE}:resend", data={"messageIds": message_id})
    assert (done.status_code, done.headers["location"]) == (303, PAGE), done.text
    assert "Messages to hook: 1 resent." in (await holder.get(PAGE)).text
    refused = await holder.post(f"{PAGE}:recover", data={"startTime": "1h", "expectedCount": "0", "asOf": _LATE})
    assert refused.status_code == 403
    assert "operations" not in await world.ok("GET", f"{world.project}/operations")


async def acknowledged(world: Guarded, message_id: str) -> bool:
    found = await world.ok("GET", f"{world.project}/messages/{message_id}")
    states = {one["subscription"]: one["state"] for one in found["subscriptions"]}
    return states[HOOK] == "ACKNOWLEDGED"


async def test_a_link_that_permits_it_recovers_pushes_after_a_preview(
    world: Guarded, holder: httpx.AsyncClient, push_sink: PushSink
) -> None:
    await world.ok("PUT", f"{world.project}/topics/morgue", {})
    await world.ok("PUT", f"{world.project}/subscriptions/reader", {"topic": f"{world.project}/topics/morgue"})
    policy = {"deadLetterTopic": f"{world.project}/topics/morgue", "maxDeliveryAttempts": 5}
    retry = {"minimumBackoff": "0s", "maximumBackoff": "0s"}
    fields = {"name": HOOK, "deadLetterPolicy": policy, "retryPolicy": retry}
    await world.ok("PATCH", HOOK, {"subscription": fields, "updateMask": "deadLetterPolicy,retryPolicy"})
    await push_failure(world, push_sink)

    async def given_up() -> bool:
        found = await world.ok("GET", f"{HOOK}/deadLetters")
        return len(found.get("deadLetters", ())) == 2

    await eventually(given_up, seconds=120)
    await open_link(holder, await create(world, permissions=["RECOVER"]))
    page = await holder.get(PAGE)
    assert f'href="{PAGE}:recover"' in page.text
    assert ":resend" not in page.text
    form = await holder.get(f"{PAGE}:recover", params={"startTime": "1h"})
    assert "Push 2 messages again</button>" in form.text
    unseen = await holder.post(f"{PAGE}:recover", data={"startTime": "1h"})
    assert (unseen.status_code, "Look at what this would do first" in unseen.text) == (400, True)
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form.text))
    done = await holder.post(f"{PAGE}:recover", data={"startTime": "1h", **hidden})
    assert (done.status_code, done.headers["location"]) == (303, PAGE), done.text
    assert "Recovering the pushes of hook." in (await holder.get(PAGE)).text
    [operation] = (await world.ok("GET", f"{world.project}/operations"))["operations"]
    assert operation["metadata"]["startedBy"].startswith(f"shareLink:{HOOK}/shareLinks/")


async def test_a_holder_resends_only_what_the_page_shows(
    world: Guarded, holder: httpx.AsyncClient, push_sink: PushSink
) -> None:
    """Neither messages of other subscriptions and topics, nor those that its own has never pushed."""
    await world.ok("POST", f"{HOOK}:pausePush", {})
    other = await push_failure(world, push_sink, OTHER)
    await world.ok("PUT", f"{world.project}/topics/elsewhere", {})
    elsewhere = await world.ok(
        "POST", f"{world.project}/topics/elsewhere:publish", {"messages": [{"data": "YQ=="}]}
    )
    await open_link(holder, await create(world, permissions=["RESEND", "RECOVER"]))
    for message_id in (other, elsewhere["messageIds"][0], "1", "x", f"{other} 1"):
        refused = await holder.post(f"{PAGE}:resend", data={"messageIds": message_id})
        assert refused.status_code in (400, 404), (message_id, refused.text)
        assert "nobody" not in refused.text
    refused = await holder.post(f"/console/shared/{OTHER}/pushAttempts:resend", data={"messageIds": other})
    assert refused.status_code == 401
    for verb in ("testPush", "pausePush", "resumePush", "redrive", "purge", "delete"):
        for path in (f"/console/shared/{HOOK}:{verb}", f"{PAGE}:{verb}", f"/console/{HOOK}:{verb}"):
            answer = await holder.post(path, data={})
            signs_in = answer.headers.get("location", "").startswith("/console/login")
            assert answer.status_code in (401, 405) or signs_in, (path, answer.headers)


@pytest.mark.parametrize("ended", ["expired", "revoked"])
@pytest.mark.parametrize("verb", ["resend", "recover"])
async def test_a_link_that_has_ended_does_nothing(
    world: Guarded, holder: httpx.AsyncClient, push_sink: PushSink, ended: str, verb: str
) -> None:
    message_id = await push_failure(world, push_sink)
    link = await create(world, permissions=["RESEND", "RECOVER"], ttl="60s")
    headers = {"Cookie": f"{COOKIE}={token_of(link)}"}
    assert (await holder.get(f"{PAGE}:{verb}", headers=headers)).status_code == 200
    if ended == "revoked":
        await world.ok("DELETE", link["name"])
    else:
        world.clock.ahead += timedelta(seconds=60)
    typed = {"messageIds": message_id, "startTime": "1h", "expectedCount": "0", "asOf": _LATE}
    for answer in (
        await holder.post(f"{PAGE}:{verb}", data=typed, headers=headers),
        await holder.get(f"{PAGE}:{verb}", headers=headers),
    ):
        assert (answer.status_code, "has expired or was revoked" in answer.text) == (401, True)
    assert "operations" not in await world.ok("GET", f"{world.project}/operations")


async def test_forms_of_other_pages_do_nothing_for_a_holder(world: Guarded, holder: httpx.AsyncClient) -> None:
    await open_link(holder, await create(world, permissions=["RESEND", "RECOVER"]))
    for headers in ({"Origin": "https://evil.example.com"}, {"Sec-Fetch-Site": "cross-site"}):
        for verb in ("resend", "recover"):
            answer = await holder.post(f"{PAGE}:{verb}", data={"messageIds": "1"}, headers=headers)
            assert answer.status_code == 403


_LATE = "2100-01-01T00:00:00Z"


# --- who may give what ------------------------------------------------------------------------------------------


async def test_a_link_never_permits_more_than_its_creator_may_do(world: Guarded) -> None:
    await world.ok(
        "POST",
        f"{world.project}/roles",
        {"roleId": "sharer", "role": {"includedPermissions": ["pubsub.subscriptions.setIamPolicy"]}},
    )
    key = await world.key(await world.account("sharer", role=f"{world.project}/roles/sharer"))
    refused = await world.call("POST", f"{HOOK}:createShareLink", {}, headers=world.bearer(key))
    assert refused.status_code == 403
    assert "pubsub.subscriptions." in refused.json()["error"]["message"]
    viewer = await world.key(await world.account("editor", role="roles/pubsub.editor"))
    refused = await world.call("POST", f"{HOOK}:createShareLink", {}, headers=world.bearer(viewer))
    assert refused.status_code == 403
    async with world.database.transaction() as connection:
        assert not (await connection.execute(select(share_links.c.link_id))).all()


async def test_a_link_ends_when_its_creator_loses_the_permission_and_works_again_with_it(
    world: Guarded, holder: httpx.AsyncClient
) -> None:
    account = await world.account("sharing", role="roles/pubsub.admin")
    await open_link(holder, await create(world, await world.key(account)))
    assert (await holder.get(PAGE)).status_code == 200
    policy = await world.ok("POST", f"{world.project}:getIamPolicy", {})
    member = f"serviceAccount:{account['email']}"
    lesser = [{"role": "roles/pubsub.editor", "members": [member]}]
    await world.ok("POST", f"{world.project}:setIamPolicy", {"policy": {"bindings": lesser}})
    ended = await holder.get(PAGE)
    assert (ended.status_code, "has expired or was revoked" in ended.text) == (401, True)
    await world.ok("POST", f"{world.project}:setIamPolicy", {"policy": {"bindings": policy["bindings"]}})
    assert (await holder.get(PAGE)).status_code == 200


@pytest.mark.parametrize(
    "ended", ["disabled", "account deleted", "link deleted", "subscription deleted", "made again", "expired"]
)
async def test_what_ends_a_link(world: Guarded, holder: httpx.AsyncClient, ended: str) -> None:
    account = await world.account("sharing", role="roles/pubsub.admin")
    link = await create(world, await world.key(account), ttl="60s")
    await open_link(holder, link)
    assert (await holder.get(PAGE)).status_code == 200
    if ended == "disabled":
        await world.ok("POST", f"{account['name']}:disable")
    elif ended == "account deleted":
        await world.ok("DELETE", account["name"])
    elif ended == "link deleted":
        await world.ok("DELETE", link["name"])
    elif ended == "expired":
        world.clock.ahead += timedelta(seconds=60)
    else:
        found = await world.ok("GET", HOOK)
        await world.ok("DELETE", HOOK)
        if ended == "made again":
            await world.ok("PUT", HOOK, {"topic": found["topic"], "pushConfig": found["pushConfig"]})
    headers = {"Cookie": f"{COOKIE}={token_of(link)}"}  # httpx's clock is not the broker's
    assert (await holder.get(PAGE, headers=headers)).status_code == 401
    assert (await open_link(holder, link)).status_code == 401


async def test_a_key_of_the_creator_may_be_replaced_while_the_link_works(
    world: Guarded, holder: httpx.AsyncClient
) -> None:
    """A link is its creator's, not the key's with which it was created."""
    key = await world.key(await world.account("sharing", role="roles/pubsub.admin"))
    await open_link(holder, await create(world, key))
    await world.ok("DELETE", key["name"])
    assert (await holder.get(PAGE)).status_code == 200


async def test_a_link_of_an_api_key_ends_with_the_key(world: Guarded, holder: httpx.AsyncClient) -> None:
    made = await world.ok("POST", f"{world.project}/apiKeys", {"roles": ["roles/pubsub.admin"]})
    headers = {"X-Goog-Api-Key": made["keyString"]}
    link = await world.ok("POST", f"{HOOK}:createShareLink", {}, headers=headers)
    await open_link(holder, link)
    assert (await holder.get(PAGE)).status_code == 200
    await world.ok("DELETE", made["name"])
    assert (await holder.get(PAGE)).status_code == 401


# --- the calls --------------------------------------------------------------------------------------------------


async def test_links_are_listed_page_by_page_and_deleted_without_their_tokens(world: Guarded) -> None:
    made = [await create(world, permissions=["RESEND"], ttl="2592000s") for _ in range(3)]
    found, query = list[Json](), {"pageSize": "2"}
    while True:
        answer = await world.ok("GET", f"{HOOK}/shareLinks", params=query)
        found += answer.get("shareLinks", [])
        if "nextPageToken" not in answer:
            break
        query["pageToken"] = answer["nextPageToken"]
    without_path = [{key: value for key, value in link.items() if key != "path"} for link in made]
    assert found == sorted(without_path, key=lambda link: str(link["name"]))
    assert found[0]["permissions"] == ["VIEW_PUSH_ATTEMPTS", "RESEND"]
    assert found[0]["creator"] == f"serviceAccount:{world.admin['client_email']}"
    assert await world.ok("GET", f"{OTHER}/shareLinks") == {}
    preview = await world.ok("DELETE", found[0]["name"], params={"validateOnly": "true"})
    assert preview != {}
    other = found[0]["name"].replace("/hook/", "/other/")
    assert (await world.call("DELETE", other)).status_code == 404
    await world.ok("DELETE", found[0]["name"])
    assert (await world.call("DELETE", found[0]["name"])).status_code == 404
    assert len((await world.ok("GET", f"{HOOK}/shareLinks"))["shareLinks"]) == 2


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"permissions": ["DELETE"]}, "permissions=DELETE"),
        ({"permissions": ["pubsub.subscriptions.consume"]}, "VIEW_PUSH_ATTEMPTS, RESEND, RECOVER"),
        ({"ttl": "2592001s"}, "30 days"),
        ({"ttl": "59s"}, "ttl=59s"),
        ({"ttl": "a week"}, "ttl"),
        ({"ttl": "-60s"}, "ttl"),
        ({"unknown": 1}, "unknown"),
        ({"permissions": "RESEND"}, "permissions"),
    ],
)
async def test_a_link_that_cannot_be_is_refused(world: Guarded, body: Json, why: str) -> None:
    answer = await world.call("POST", f"{HOOK}:createShareLink", body)
    assert (answer.status_code, why in answer.text) == (400, True), answer.text
    assert await world.ok("GET", f"{HOOK}/shareLinks") == {}


async def test_only_what_is_pushed_has_links_and_a_bounded_number(world: Guarded) -> None:
    pulled = await world.call("POST", f"{world.project}/subscriptions/pulled:createShareLink", {})
    assert (pulled.status_code, "Nothing is pushed" in pulled.text) == (400, True)
    missing = await world.call("POST", f"{world.project}/subscriptions/none:createShareLink", {})
    assert missing.status_code == 404
    for _ in range(MAX_LINKS):
        await create(world)
    assert (await world.call("POST", f"{HOOK}:createShareLink", {})).status_code == 429
    assert len((await world.ok("GET", f"{HOOK}/shareLinks"))["shareLinks"]) == MAX_LINKS


async def test_the_database_and_the_audit_log_have_no_token(world: Guarded, holder: httpx.AsyncClient) -> None:
    link = await create(world)
    await open_link(holder, link)
    await holder.get(PAGE)
    trail = world.broker.guard.audit_trail
    assert trail is not None
    trail._take_noted(in_window=True)
    await trail.flush()
    async with world.database.transaction() as connection:
        [digest] = (await connection.execute(select(share_links.c.digest))).scalars()
        entries = (await connection.execute(text("SELECT audit_entries::text FROM audit_entries"))).scalars().all()
        rows = (await connection.execute(text("SELECT share_links::text FROM share_links"))).scalars().all()
    assert digest == hashlib.sha256(token_of(link).encode()).digest()
    assert not any(token_of(link) in entry for entry in (*entries, *rows))
    assert any("CreateShareLink" in entry and link["name"] in entry for entry in entries)
    assert any("ListPushAttempts" in entry and f"shareLink:{link['name']}" in entry for entry in entries)


async def test_links_that_have_ended_are_deleted(world: Guarded) -> None:
    await create(world, ttl="60s")
    await world.ok("POST", f"{OTHER}:createShareLink", {})
    await world.ok("DELETE", OTHER)
    async with world.database.connection() as driver:
        await delete_ended_share_links(driver, now=world.now + timedelta(seconds=61))
    async with world.database.transaction() as connection:
        assert not (await connection.execute(select(share_links.c.link_id))).all()


async def test_pages_of_other_origins_cannot_open_a_link(world: Guarded, holder: httpx.AsyncClient) -> None:
    data = {"token": token_of(await create(world))}
    for headers in ({"Origin": "https://evil.example.com"}, {"Host": "evil.example.com"}):
        assert (await holder.post("/console/shared", data=data, headers=headers)).status_code == 403


async def test_where_nobody_is_asked_who_calls_there_is_no_link(database_url: str) -> None:
    from tests.fixtures.in_process import own_broker

    async with own_broker(database_url, console="on") as (_, rest):
        await rest.create_topic("orders")
        await rest.create_subscription("hook", topic="orders", pushConfig={"pushEndpoint": "http://127.0.0.1:1"})
        code, why = await rest.error("POST", f"{rest.subscription('hook')}:createShareLink", {})
    assert (code, "--auth required" in why) == ("FAILED_PRECONDITION", True)
