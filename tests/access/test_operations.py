"""Who may have dead letters delivered again, and who sees and ends the operation that does it (G1, G2)."""

from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json, eventually, message


async def _subscriber(broker: Guarded, name: str, *subscriptions: str) -> Json:
    """The headers of an account that may consume these, and nothing else."""
    account = await broker.account(name, role="")
    for subscription in subscriptions:
        binding = {"role": "roles/pubsub.subscriber", "members": [f"serviceAccount:{account['email']}"]}
        path = f"{broker.project}/subscriptions/{subscription}:setIamPolicy"
        await broker.ok("POST", path, {"policy": {"bindings": [binding]}})
    return {"headers": broker.bearer(await broker.key(account))}


async def test_dead_letters_stay_where_the_caller_may_not_consume_and_operations_are_their_target_s(
    database_url: str,
) -> None:
    settings = {"min_delivery_attempts": 1, "dead_letter_interval_seconds": 0.05}
    async with guarded(database_url, **settings) as broker:
        project = broker.project
        for topic in ("orders", "dead"):
            await broker.ok("PUT", f"{project}/topics/{topic}", {})
        for pile in ("mine", "theirs"):
            await broker.ok("PUT", f"{project}/subscriptions/{pile}", {"topic": f"{project}/topics/dead"})
        policy = {"deadLetterTopic": f"{project}/topics/dead", "maxDeliveryAttempts": 1}
        body = {"topic": f"{project}/topics/orders", "deadLetterPolicy": policy}
        sub = f"{project}/subscriptions/worker"
        await broker.ok("PUT", sub, body)
        await broker.ok("POST", f"{project}/topics/orders:publish", {"messages": [message("a")]})
        [received] = (await broker.ok("POST", f"{sub}:pull", {"maxMessages": 1}))["receivedMessages"]
        await broker.ok(
            "POST", f"{sub}:modifyAckDeadline", {"ackIds": [received["ackId"]], "ackDeadlineSeconds": 0}
        )

        async def waiting(pile: str) -> int:
            position = await broker.ok("GET", f"{project}/subscriptions/{pile}/snapshot")
            return int(position["undeliveredMessages"])

        async def is_dead() -> bool:
            return await waiting("theirs") == 1

        await eventually(is_dead)
        ours = await _subscriber(broker, "our-account", "worker", "mine")
        others = await _subscriber(broker, "other-account", "theirs")
        assert (await broker.call("POST", f"{sub}:redrive", {}, **others)).status_code == 403
        edit = {"messageId": received["message"]["messageId"], "data": "Yg=="}
        assert (await broker.call("POST", f"{sub}:editDeadLetter", edit, **others)).status_code == 403
        refused = await broker.call("POST", f"{sub}:editDeadLetter", edit, **ours)
        assert (refused.status_code, "theirs" in refused.text) == (400, True), "it lies there as well"
        assert (await broker.call("POST", f"{sub}:discard", {"reasons": ["nack"]}, **others)).status_code == 403
        resend = {"messageId": received["message"]["messageId"]}
        assert (await broker.call("POST", f"{sub}:resend", resend, **others)).status_code == 403
        assert (
            await broker.call("POST", f"{sub}:resend", {"messageId": "999000000000000001"}, **ours)
        ).status_code == 404
        elsewhere = {"target": f"{project}/topics/orders"}
        refused = await broker.call("POST", f"{sub}:redrive", elsewhere, **ours)
        assert (refused.status_code, "pubsub.topics.publish" in refused.text) == (403, True)
        started = await broker.ok("POST", f"{sub}:redrive", {}, **ours)
        assert started["metadata"]["startedBy"].startswith("serviceAccount:our-account@")
        assert started["metadata"]["takenFrom"] == [f"{project}/subscriptions/mine"]
        assert started["metadata"]["leftAlone"] == [f"{project}/subscriptions/theirs"]
        name = started["name"]
        ended = await broker.ok("POST", f"{name}:wait", {}, **ours)
        assert ended["response"]["redriven"] == "1"
        assert (await waiting("mine"), await waiting("theirs")) == (0, 1)
        for method, path in (("GET", name), ("DELETE", name), ("POST", f"{name}:cancel"), ("POST", f"{name}:wait")):
            hidden = await broker.call(method, path, **others)
            none = await broker.call(method, path.replace(name, f"{project}/operations/none"), **others)
            assert (hidden.status_code, none.status_code) == (404, 404), path
            assert hidden.text.replace(name.rpartition("/")[2], "none") == none.text, "the caller learns of it"
            unknown = {"headers": {}}
            assert (await broker.call(method, path, **unknown)).status_code == 401, path
        assert (await broker.call("GET", f"{project}/operations", **ours)).status_code == 403
        viewer = {"headers": broker.bearer(await broker.key(await broker.account("viewer", role="roles/viewer")))}
        assert len((await broker.ok("GET", f"{project}/operations", **viewer))["operations"]) == 1
        assert (await broker.ok("GET", name, **viewer))["done"]
        refused = await broker.call("DELETE", name, **viewer)
        assert (refused.status_code, "pubsub.subscriptions.consume" in refused.text) == (403, True)
        assert await broker.ok("DELETE", name, **ours) == {}


async def test_who_copies_must_read_the_one_topic_and_publish_on_the_other(database_url: str) -> None:
    async with guarded(database_url) as broker:
        project = broker.project
        for topic in ("orders", "replay"):
            await broker.ok("PUT", f"{project}/topics/{topic}", {})
        account = await broker.account("copier", role="")
        key = {"headers": broker.bearer(await broker.key(account))}
        member = f"serviceAccount:{account['email']}"
        copy = f"{project}/topics/orders:copy"
        body = {"targetTopic": f"{project}/topics/replay", "validateOnly": True}
        for topic, role in (("orders", "roles/pubsub.subscriber"), ("replay", "roles/pubsub.publisher")):
            assert (await broker.call("POST", copy, body, **key)).status_code == 403, topic
            policy = {"policy": {"bindings": [{"role": role, "members": [member]}]}}
            await broker.ok("POST", f"{project}/topics/{topic}:setIamPolicy", policy)
        assert (await broker.ok("POST", copy, body, **key))["response"]["chosen"] == "0"


async def test_who_purges_recovers_or_replays_must_consume_and_sees_that_operation(database_url: str) -> None:
    async with guarded(database_url) as broker:
        project = broker.project
        await broker.ok("PUT", f"{project}/topics/orders", {})
        push = {"pushConfig": {"pushEndpoint": "http://127.0.0.1:9/nobody"}}
        for name in ("worker", "other"):
            sub = {"topic": f"{project}/topics/orders"} | push
            await broker.ok("PUT", f"{project}/subscriptions/{name}", sub)
        ours = await _subscriber(broker, "our-account", "worker")
        others = await _subscriber(broker, "other-account", "other")
        since = {"startTime": "2020-01-01T00:00:00Z"}
        bodies = {"purge": {"filter": "attributes:env"}, "recover": since, "replayMissing": since}
        worker = f"{project}/subscriptions/worker"
        assert (await broker.call("POST", f"{worker}:purge", {}, **others)).status_code == 403
        assert await broker.ok("POST", f"{worker}:purge", {}, **ours) == {}
        for verb, body in bodies.items():
            refused = await broker.call("POST", f"{worker}:{verb}", body, **others)
            assert (refused.status_code, "pubsub.subscriptions.consume" in refused.text) == (403, True), verb
            assert (await broker.call("POST", f"{worker}:{verb}", body, headers={})).status_code == 401, verb
            started = await broker.ok("POST", f"{worker}:{verb}", body, **ours)
            assert started["metadata"]["startedBy"].startswith("serviceAccount:our-account@")
            name = started["name"]
            assert (await broker.ok("POST", f"{name}:wait", {}, **ours))["done"]
            for method, path in (("GET", name), ("POST", f"{name}:cancel"), ("DELETE", name)):
                assert (await broker.call(method, path, **others)).status_code == 404, (verb, method)
            assert await broker.ok("DELETE", name, **ours) == {}
        assert (await broker.call("POST", f"{project}/topics/orders:purge", {}, **ours)).status_code == 403
