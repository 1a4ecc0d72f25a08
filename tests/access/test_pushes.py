"""What pushes may do in the name of others, and who sees what of messages and answers (E2)."""

import asyncio
import json
from typing import Any

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.pushing import withheld
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json, Rest, eventually, message
from tests.fixtures.in_process import running_in_process
from tests.fixtures.push_sink import PushSink

TOPIC, SUBSCRIPTION = "projects/guarded/topics/orders", "projects/guarded/subscriptions/billing"


def _push(email: str, url: str = "http://127.0.0.1:9/", **token: str) -> Json:
    return {"pushConfig": {"pushEndpoint": url, "oidcToken": {"serviceAccountEmail": email, **token}}}


def _patch(mask: str, **fields: Any) -> Json:
    return {"subscription": {"name": SUBSCRIPTION, **fields}, "updateMask": mask}


def _ways(push: Json) -> list[tuple[str, str, Json]]:
    """All by which a subscription gets a push config."""
    url = {"pushConfig": {"pushEndpoint": "http://127.0.0.1:9/other"}}
    return [
        ("PUT", f"{SUBSCRIPTION}-2", {"topic": TOPIC, **push}),
        ("PATCH", SUBSCRIPTION, _patch("pushConfig", **push)),
        ("PATCH", SUBSCRIPTION, _patch("pushConfig.oidcToken", **push)),
        ("PATCH", SUBSCRIPTION, _patch("pushConfig.oidcToken.serviceAccountEmail", **push)),
        ("PATCH", SUBSCRIPTION, _patch("push_config.push_endpoint,push_config.oidc_token", **push)),
        ("PUT", f"{SUBSCRIPTION}?updateMask=pushConfig", {"topic": TOPIC, **push}),
        ("PUT", f"{SUBSCRIPTION}?updateMask=pushConfig.pushEndpoint", {"topic": TOPIC, **push}),
        ("POST", f"{SUBSCRIPTION}:modifyPushConfig", push),
        # The token that is there already, sent elsewhere.
        ("PATCH", SUBSCRIPTION, _patch("pushConfig.pushEndpoint", **url)),
        ("PUT", f"{SUBSCRIPTION}?updateMask=pushConfig.pushEndpoint", {"topic": TOPIC, **url}),
    ]


async def _given(broker: Guarded, role: str, resource: str, key: Json) -> None:
    binding = {"role": role, "members": [f"serviceAccount:{key['client_email']}"]}
    await broker.ok("POST", f"{resource}:setIamPolicy", {"policy": {"bindings": [binding]}})


async def _somebody(broker: Guarded, role: str = "", account_id: str = "some-account") -> Json:
    """The key of an account with a role on the project."""
    return await broker.key(await broker.account(account_id, role=role))


@pytest.fixture
async def topic(broker: Guarded) -> None:
    await broker.ok("PUT", TOPIC)


@pytest.mark.usefixtures("topic")
async def test_a_token_is_had_only_by_who_may_act_as_its_account_whatever_the_call(broker: Guarded) -> None:
    account = await broker.account("some-pusher", role="")
    push = _push(account["email"], audience="https://somebody.example")
    before = await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC, **push})
    editor = await _somebody(broker, "roles/pubsub.editor")
    for method, path, body in _ways(push):
        refused = await broker.call(method, path, body, headers=broker.bearer(editor))
        assert refused.status_code == 403, (method, path, body, refused.text)
        assert "iam.serviceAccounts.actAs" in refused.json()["error"]["message"]
    assert await broker.ok("GET", SUBSCRIPTION) == before
    await _given(broker, "roles/iam.serviceAccountUser", account["name"], editor)
    for method, path, body in _ways(push):
        allowed = await broker.call(method, path, body, headers=broker.bearer(editor))
        assert allowed.status_code == 200, (method, path, body, allowed.text)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("query", ["", "?updateMask=pushConfig.pushEndpoint"])
async def test_a_token_that_comes_while_the_endpoint_is_changed_is_not_sent_to_the_new_one(
    broker: Guarded, query: str
) -> None:
    """By who may not act as its account: the permissions are looked at before the row is locked."""
    url = {"pushConfig": {"pushEndpoint": "http://127.0.0.1:9/theirs"}}
    await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC, **url})
    editor = await _somebody(broker, "roles/pubsub.editor")
    change = ("PUT", SUBSCRIPTION + query, {"topic": TOPIC, **url})
    if not query:
        change = ("PATCH", SUBSCRIPTION, _patch("pushConfig.pushEndpoint", **url))
    account = await broker.account("some-pusher", role="")
    config = {"pushEndpoint": "http://127.0.0.1:9/", "oidcToken": {"serviceAccountEmail": account["email"]}}
    async with broker.database.transaction() as connection:
        await connection.exec_driver_sql(
            "UPDATE subscriptions SET settings = settings || %(change)s::jsonb",
            {"change": json.dumps({"pushConfig": config})},
        )
        late = asyncio.create_task(broker.call(*change, headers=broker.bearer(editor)))

        async def waits() -> bool:
            async with broker.database.transaction() as other:
                blocked = await other.exec_driver_sql(
                    "SELECT count(*) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )
                return bool(blocked.scalar())

        await eventually(waits)
    assert (await late).json()["error"]["status"] == "ABORTED"
    assert (await broker.ok("GET", SUBSCRIPTION))["pushConfig"]["pushEndpoint"] == "http://127.0.0.1:9/"


@pytest.mark.usefixtures("topic")
async def test_a_token_is_of_an_account_of_this_broker_even_for_who_owns_everything(broker: Guarded) -> None:
    account = await broker.account("some-pusher", role="")
    before = await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC, **_push(account["email"])})
    for email in ("chief@corp.example", f"x{account['email']}", f"{account['email']}/x"):
        for method, path, body in _ways(_push(email))[:-2]:
            if path.endswith("pushConfig.pushEndpoint"):
                continue  # takes no token from the body
            refused = await broker.call(method, path, body)
            assert refused.status_code == 400, (method, path, body, refused.text)
            assert "serviceAccountEmail" in refused.json()["error"]["message"]
    assert await broker.ok("GET", SUBSCRIPTION) == before


async def _paused(broker: Guarded) -> str:
    async def reason() -> str | None:
        return (await broker.ok("GET", f"{SUBSCRIPTION}:pushStatus")).get("pausedReason")

    found: str = await eventually(reason)
    return found


@pytest.mark.usefixtures("topic")
async def test_pushes_wait_while_the_account_of_their_token_is_disabled(
    broker: Guarded, push_sink: PushSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withheld, "_AGAIN_SECONDS", 3600.0)  # a change of access is a reason to look at once
    account = await broker.account("some-pusher", role="")
    path = "/status/200/disabled-account"
    await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC, **_push(account["email"], push_sink.url + path)})
    await broker.ok("POST", f"{account['name']}:disable", {})
    await broker.ok("POST", f"{TOPIC}:publish", {"messages": [message("hi")]})
    why = f"Not allowed: the service account {account['email']}, whose token pushes carry, is disabled."
    assert await _paused(broker) == why
    assert await push_sink.requests(path) == []
    waiting = broker.broker.pusher._withheld
    await eventually(lambda: SUBSCRIPTION in waiting._withheld)
    await waiting.run_once()
    await broker.ok("POST", f"{account['name']}:enable", {})
    [pushed] = await push_sink.wait_for(path, 1)
    assert pushed.headers["authorization"].startswith("Bearer ")


async def test_a_token_of_anybody_from_before_authentication_is_not_sent_any_more(
    database_url: str, push_sink: PushSink
) -> None:
    path = "/status/200/from-before"
    async with running_in_process(Broker(AppConfig(database_url=database_url))) as client:
        rest = Rest(client, "projects/guarded")
        await rest.create_topic("orders")
        await rest.create_subscription("billing", "orders", **_push("chief@corp.example", push_sink.url + path))
    async with guarded(database_url) as broker:
        await broker.ok("POST", f"{TOPIC}:publish", {"messages": [message("hi")]})
        assert await _paused(broker) == (
            "Not allowed: chief@corp.example, whose token pushes carry, is no service account of this broker."
        )
        assert await push_sink.requests(path) == []
        account = await broker.account("some-pusher", role="")
        push = _push(account["email"], push_sink.url + path)
        await broker.ok("POST", f"{SUBSCRIPTION}:modifyPushConfig", push)
        await push_sink.wait_for(path, 1)


@pytest.mark.usefixtures("topic")
async def test_what_an_endpoint_has_answered_is_shown_to_who_may_update_the_subscription_alone(
    broker: Guarded, push_sink: PushSink
) -> None:
    push = {"pushConfig": {"pushEndpoint": f"{push_sink.url}/body/500/secret-of-the-network"}}
    await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC, **push})
    await broker.ok("POST", f"{TOPIC}:publish", {"messages": [message("hi")]})

    async def failed() -> bool:
        return bool(await broker.ok("GET", f"{SUBSCRIPTION}:pushFailures"))

    await eventually(failed)
    editor = await _somebody(broker, "roles/pubsub.editor", "some-editor")
    shown = await broker.call("GET", f"{SUBSCRIPTION}:pushFailures", headers=broker.bearer(editor))
    assert "secret-of-the-network" in shown.text
    for role in ("roles/pubsub.viewer", "roles/pubsub.subscriber"):
        other = await _somebody(broker, role, f"some-{role[-6:]}")
        refused = await broker.call("GET", f"{SUBSCRIPTION}:pushFailures", headers=broker.bearer(other))
        assert refused.status_code == 403
        assert "pubsub.subscriptions.update" in refused.json()["error"]["message"]
        status = await broker.call("GET", f"{SUBSCRIPTION}:pushStatus", headers=broker.bearer(other))
        assert status.status_code == (200 if role == "roles/pubsub.viewer" else 403)
        assert "secret" not in status.text


@pytest.mark.usefixtures("topic")
async def test_a_filter_on_trial_shows_what_the_caller_may_consume(broker: Guarded) -> None:
    await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC, "filter": 'attributes.of = "billing"'})
    messages = [message(of, {"of": of}) for of in ("billing", "salaries")]
    ids = (await broker.ok("POST", f"{TOPIC}:publish", {"messages": messages}))["messageIds"]
    viewer = broker.bearer(await _somebody(broker, "roles/pubsub.viewer", "some-viewer"))
    consumer_key = await _somebody(broker, account_id="some-consumer")
    await _given(broker, "roles/pubsub.subscriber", SUBSCRIPTION, consumer_key)
    consumer = broker.bearer(consumer_key)

    async def shown(path: str, headers: dict[str, str]) -> int | list[str]:
        body = {"filter": "attributes:of", "includeData": True}
        response = await broker.call("POST", f"{path}:testFilter", body, headers=headers)
        if response.status_code != 200:
            return response.status_code
        return [found["messageId"] for found in response.json().get("matchedMessages", [])]

    assert await shown(SUBSCRIPTION, viewer) == await shown(TOPIC, viewer) == 403
    assert await shown(TOPIC, consumer) == 403
    assert await shown(SUBSCRIPTION, consumer) == ids[:1]
    await _given(
        broker, "roles/pubsub.subscriber", TOPIC, consumer_key
    )  # may attach a subscription without a filter
    assert await shown(TOPIC, consumer) == ids[::-1]


@pytest.mark.usefixtures("topic")
async def test_a_filter_is_changed_by_who_may_update_the_subscription_and_see_the_topic(broker: Guarded) -> None:
    await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC, "filter": 'attributes.of = "billing"'})
    key = await _somebody(broker, account_id="some-owner")

    async def status(*, validate_only: bool = False) -> int:
        body = {"filter": "", "validateOnly": validate_only}
        return (
            await broker.call("POST", f"{SUBSCRIPTION}:setFilter", body, headers=broker.bearer(key))
        ).status_code

    assert await status() == 403
    await _given(broker, "roles/pubsub.editor", SUBSCRIPTION, key)
    assert await status() == await status(validate_only=True) == 403
    assert (await broker.ok("GET", SUBSCRIPTION))["filter"] == 'attributes.of = "billing"'
    await _given(broker, "roles/pubsub.subscriber", TOPIC, key)
    assert await status(validate_only=True) == await status() == 200
    [entry] = [
        each
        for each in (await broker.ok("GET", "projects/guarded/auditLogs"))["entries"]
        if each["protoPayload"]["methodName"].endswith("SetFilter")
        and each["protoPayload"]["authenticationInfo"].get("principalEmail") == key["client_email"]
        and not each["protoPayload"].get("status", {}).get("code")
    ][:1]
    assert entry["protoPayload"]["resourceName"] == SUBSCRIPTION
