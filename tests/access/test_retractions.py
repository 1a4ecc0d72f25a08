"""Who may withdraw messages, and publish in their place (J6)."""

import pytest

from tests.fixtures.access import guarded
from tests.fixtures.broker import message, text


@pytest.mark.parametrize(
    ("permissions", "may_retract", "may_replace"),
    [
        (["pubsub.topics.publish", "pubsub.topics.get"], False, False),
        (["pubsub.topics.update"], True, False),
        (["pubsub.subscriptions.consume", "pubsub.topics.delete"], False, False),
        (["pubsub.topics.update", "pubsub.topics.publish"], True, True),
    ],
)
async def test_who_may_not_change_the_topic_withdraws_nothing_and_who_may_not_publish_replaces_nothing(
    database_url: str, permissions: list[str], may_retract: bool, may_replace: bool
) -> None:
    async with guarded(database_url) as broker:
        topic, subscription = f"{broker.project}/topics/orders", f"{broker.project}/subscriptions/worker"
        await broker.ok("PUT", topic)
        await broker.ok("PUT", subscription, {"topic": topic})
        sent = {"messages": [message("a"), message("b")]}
        ids = (await broker.ok("POST", f"{topic}:publish", sent))["messageIds"]
        role = {"roleId": "some.role", "role": {"includedPermissions": permissions}}
        made = await broker.ok("POST", f"{broker.project}/roles", role)
        account = await broker.account("some-account", role=made["name"])
        theirs = {"headers": broker.bearer(await broker.key(account))}
        retract = await broker.call("POST", f"{topic}:retract", {"messageIds": ids[:1]}, **theirs)
        replacing = {"messageId": ids[1], "message": message("c")}
        replace = await broker.call("POST", f"{topic}:replace", replacing, **theirs)
        assert [retract.status_code, replace.status_code] == [
            200 if may else 403 for may in (may_retract, may_replace)
        ]
        # Nor is anybody told of subscriptions that he may not see.
        for answer in (retract, replace):
            assert "worker" not in answer.text
        received = (await broker.ok("POST", f"{subscription}:pull", {"maxMessages": 10}))["receivedMessages"]
        left = ([] if may_retract else ["a"]) + ["c" if may_replace else "b"]
        assert [text(each) for each in received] == left
        other = f"{broker.project}/topics/secret-plan"
        await broker.ok("PUT", other)
        foreign = (await broker.ok("POST", f"{other}:publish", {"messages": [message("d")]}))["messageIds"]
        for verb, body in (
            ("retract", {"messageIds": foreign}),
            ("replace", replacing | {"messageId": foreign[0]}),
        ):
            refused = await broker.call("POST", f"{topic}:{verb}", body, **theirs)
            assert refused.status_code == (400 if (may_replace if verb == "replace" else may_retract) else 403)
            assert "secret-plan" not in refused.text
            shown = await broker.call("POST", f"{topic}:{verb}", body)
            assert (shown.status_code, other in shown.text) == (400, True), "an owner may see both topics"
        for verb, body in (("retract", {"messageIds": ids}), ("replace", replacing)):
            assert (await broker.call("POST", f"{topic}:{verb}", body, headers={})).status_code == 401
