"""Exactly-once subscriptions over REST."""

from tests.fixtures.broker import Rest


async def _subscription(rest: Rest) -> None:
    await rest.create_topic()
    created = await rest.create_subscription(enableExactlyOnceDelivery=True)
    assert (created["enableExactlyOnceDelivery"], created["ackDeadlineSeconds"]) == (True, 60)


async def test_stale_ids_are_refused_by_name_and_good_ones_acked(rest: Rest) -> None:
    await _subscription(rest)
    await rest.publish("a", "b")
    first, good = await rest.pull()
    await rest.modify_ack_deadline([first], 0)
    [again] = await rest.pull(wait=True)
    body = {"ackIds": [first["ackId"], good["ackId"]]}
    response = await rest.call("POST", f"{rest.subscription()}:acknowledge", body)
    error = response.json()["error"]
    assert (response.status_code, error["status"]) == (400, "INVALID_ARGUMENT")
    [detail] = error["details"]
    assert detail["reason"] == "EXACTLY_ONCE_ACKID_FAILURE"
    assert detail["domain"] == "pubsub.googleapis.com"
    assert detail["metadata"] == {first["ackId"]: "PERMANENT_FAILURE_INVALID_ACK_ID"}
    await rest.acknowledge([again])
    await rest.acknowledge([again, good])  # a repeated ack succeeds


async def test_a_stale_deadline_change_is_refused(rest: Rest) -> None:
    await _subscription(rest)
    await rest.publish("a")
    received = await rest.pull()
    await rest.acknowledge(received)
    body = {"ackIds": [received[0]["ackId"]], "ackDeadlineSeconds": 30}
    assert (await rest.error("POST", f"{rest.subscription()}:modifyAckDeadline", body))[0] == "INVALID_ARGUMENT"


async def test_it_can_be_switched_on_and_off(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    for wanted in (True, False):
        update = {"subscription": {"enableExactlyOnceDelivery": wanted}, "updateMask": "enableExactlyOnceDelivery"}
        changed = await rest.ok("PATCH", rest.subscription(), update)
        assert changed.get("enableExactlyOnceDelivery", False) is wanted
        await rest.publish("a")
        received = await rest.pull()
        await rest.acknowledge(received)
        await rest.acknowledge(received) if wanted else None
