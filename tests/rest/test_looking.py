"""Looking at subscriptions over REST; extensions (F3)."""

from tests.fixtures.broker import Rest


async def test_the_lag_of_a_project_has_its_subscriptions_with_what_holds_each(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription("idle")
    await rest.create_subscription("paused", pushConfig={"pushEndpoint": "http://127.0.0.1:9/"})
    await rest.ok("POST", f"{rest.subscription('paused')}:pausePush", {"reason": "Maintenance."})
    assert (await rest.ok("GET", f"{rest.project}/lag"))["totalSize"] == 2
    await rest.publish("hello")
    answer = await rest.ok("GET", f"{rest.project}/lag")
    found = {lag["subscription"].rpartition("/")[2]: lag for lag in answer["subscriptions"]}
    assert found["idle"] == found["idle"] | {
        "topic": rest.topic(),
        "undeliveredMessages": 1,
        "undeliveredBytesEstimate": 5,
        "outstandingMessages": 0,
        "heldBy": "NOTHING",
        "verdict": "Nothing holds it: its messages are young.",
    }
    assert (found["paused"]["heldBy"], found["paused"]["verdict"]) == (
        "PAUSED",
        "Pushing is paused: Maintenance.",
    )
    assert len((await rest.ok("GET", f"{rest.project}/lag", params={"pageSize": 1}))["subscriptions"]) == 1


async def test_a_size_that_cannot_be_is_refused_with_its_name_and_value(rest: Rest) -> None:
    code, text = await rest.error("GET", f"{rest.project}/lag", params={"pageSize": "-1"})
    assert (code, "page_size=-1" in text) == ("INVALID_ARGUMENT", True)
