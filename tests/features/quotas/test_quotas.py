"""Quotas (E4): what is refused, by both APIs, what it says, and whom it does not concern."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.db.driver.database import Database
from tests.fixtures.broker import Json, Rest, eventually, message
from tests.fixtures.grpc import GrpcRest, channel_to
from tests.fixtures.in_process import own_broker, running_in_process

_TYPE = "type.googleapis.com/google.rpc."
_MANY = [message("x") for _ in range(500)]  # at one a second paid for after minutes


@pytest.fixture(params=["rest", "grpc"])
async def api(request: pytest.FixtureRequest, rest: Rest, broker_url: str) -> AsyncIterator[Rest]:
    if request.param == "rest":
        yield rest
        return
    with channel_to(broker_url) as channel:
        yield GrpcRest(channel, rest.project)


async def _limit(rest: Rest, **limits: int | None) -> Json:
    return await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": limits})


async def _usage(rest: Rest, quota: str) -> Json:
    reported = await rest.ok("GET", f"{rest.project}/quotas")
    one: Json = next(one for one in reported["quotas"] if one["quota"] == quota)
    return one


async def _refused(api: Rest, path: str, body: Json) -> tuple[str, dict[str, Json]]:
    """The message and the details, by type, of a call that a quota refuses."""
    response = await api.call("POST", path, body)
    assert response.status_code == 429, response.text
    error = response.json()["error"]
    assert error["status"] == "RESOURCE_EXHAUSTED"
    return error["message"], {detail["@type"].removeprefix(_TYPE): detail for detail in error["details"]}


async def test_a_publish_beyond_the_rate_is_refused_and_says_which_limit_and_when_to_come_back(
    rest: Rest, api: Rest
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await _limit(rest, publishMessages=1)
    path = f"{rest.topic()}:publish"
    await api.ok("POST", path, {"messages": _MANY})
    text, details = await _refused(api, path, {"messages": [message("refused")]})
    for said in ("publishMessages", rest.project.removeprefix("projects/"), "of 1 (messages a second)", "/quotas"):
        assert said in text
    assert details["ErrorInfo"]["reason"] == "RATE_LIMIT_EXCEEDED"
    assert details["ErrorInfo"]["metadata"]["quota_limit"] == "publishMessages"
    assert details["QuotaFailure"]["violations"][0]["subject"] == rest.project
    assert float(details["RetryInfo"]["retryDelay"].removesuffix("s")) > 60
    assert len(await rest.drain()) == len(_MANY)  # what was refused is not there


async def test_whoever_comes_back_when_the_answer_says_passes(rest: Rest, api: Rest) -> None:
    await rest.create_topic()
    await _limit(rest, publishMessages=100)
    path, batch = f"{rest.topic()}:publish", {"messages": _MANY[:200]}
    while (response := await api.call("POST", path, batch)).status_code == 200:
        pass
    delay = response.json()["error"]["details"][-1]["retryDelay"]
    await asyncio.sleep(float(delay.removesuffix("s")))
    await api.ok("POST", path, batch)


async def test_a_project_at_its_limit_leaves_others_alone(rest: Rest, project: str) -> None:
    other = Rest(rest.client, f"{project}-other")
    for each in (rest, other):
        await each.create_topic()
        await _limit(each, publishMessages=1, publishBytes=10_000_000)
    await rest.ok("POST", f"{rest.topic()}:publish", {"messages": _MANY})
    await _refused(rest, f"{rest.topic()}:publish", {"messages": _MANY})
    await other.ok("POST", f"{other.topic()}:publish", {"messages": _MANY})


async def test_a_pull_gets_what_is_left_and_is_refused_after_it_while_acks_pass(rest: Rest, api: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish(*["x" * 200] * 40)
    await _limit(rest, subscribeMessages=25, subscribeBytes=1_000_000)
    path = f"{rest.subscription()}:pull"
    received = (await api.ok("POST", path, {"maxMessages": 100}))["receivedMessages"]
    assert 1 <= len(received) <= 25
    await _limit(rest, subscribeBytes=1)
    received += (await api.ok("POST", path, {"maxMessages": 100}))["receivedMessages"]
    _, details = await _refused(api, path, {"maxMessages": 100})
    assert details["ErrorInfo"]["metadata"]["quota_limit"] == "subscribeBytes"
    ack_ids = [one["ackId"] for one in received]
    await api.ok("POST", f"{rest.subscription()}:acknowledge", {"ackIds": ack_ids})
    await _limit(rest, subscribeMessages=None, subscribeBytes=None)
    assert len(received) + len(await rest.drain()) == 40


async def test_requests_of_a_subscriber_are_counted_and_one_that_is_refused_changes_nothing(
    rest: Rest, api: Rest
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("kept")
    [received] = await rest.pull()
    await _limit(rest, subscribeRequests=0)
    ack_ids = {"ackIds": [received["ackId"]]}
    for verb, body in (
        ("pull", {"maxMessages": 1}),
        ("acknowledge", ack_ids),
        ("modifyAckDeadline", ack_ids | {"ackDeadlineSeconds": 0}),
    ):
        text, _ = await _refused(api, f"{rest.subscription()}:{verb}", body)
        assert "subscribeRequests" in text
    await _limit(rest, subscribeRequests=None)
    assert await rest.pull() == []  # it is out still
    await rest.modify_ack_deadline([received], 0)
    assert len(await rest.drain()) == 1


_SCHEMA = {"type": "AVRO", "definition": '"string"'}


async def _make(rest: Rest, counted: str, number: int) -> httpx.Response:
    parent = f"{rest.project}/{counted}"
    if counted == "schemas":
        return await rest.call("POST", parent, _SCHEMA, params={"schemaId": f"made-{number}"})
    body = {"subscriptions": {"topic": rest.topic()}, "snapshots": {"subscription": rest.subscription()}}
    return await rest.call("PUT", f"{parent}/made-{number}", body.get(counted, {}))


@pytest.mark.parametrize("counted", ["topics", "subscriptions", "snapshots", "schemas"])
async def test_a_project_has_no_more_of_something_than_its_quota_also_when_many_are_made_at_once(
    rest: Rest, counted: str
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    limit = 3 if counted in ("topics", "subscriptions") else 2  # one of these is there
    await _limit(rest, **{counted: limit})
    made = await asyncio.gather(*(_make(rest, counted, number) for number in range(6)))
    assert Counter(response.status_code for response in made) == {200: 2, 429: 4}
    assert (await _usage(rest, counted))["usage"] == limit
    refused = next(response for response in made if response.status_code == 429)
    error = refused.json()["error"]
    assert f"{counted} of project" in error["message"]
    assert {detail["@type"].removeprefix(_TYPE) for detail in error["details"]} == {"ErrorInfo", "QuotaFailure"}
    there = next(number for number, response in enumerate(made) if response.status_code == 200)
    assert (await _make(rest, counted, there)).status_code == 409
    await rest.ok("DELETE", f"{rest.project}/{counted}/made-{there}")
    assert (await _make(rest, counted, there)).status_code == 200


async def test_no_project_has_more_than_10_000_schemas_also_when_many_are_made_at_once(
    clone: Callable[[], Any], project: str
) -> None:
    with clone() as database_url:
        database = Database(database_url, pool_size=1)
        async with database.connection() as connection:
            await connection.execute(
                "INSERT INTO payload_schemas (name, type) SELECT %s || '/schemas/s' || n, 'AVRO'"
                " FROM generate_series(1, 9998) AS n",
                [project],
            )
        await database.close()
        async with own_broker(database_url, project=project, pool_size=6) as (_, rest):
            made = await asyncio.gather(*(_make(rest, "schemas", number) for number in range(6)))
    assert Counter(response.status_code for response in made) == {200: 2, 429: 4}


async def test_a_publish_into_a_project_that_retains_too_much_is_refused_until_it_retains_less(
    rest: Rest, api: Rest
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    path, batch = f"{rest.topic()}:publish", {"messages": [message("x" * 100)] * 10}
    await _limit(rest, retainedBytes=1_500)
    await api.ok("POST", path, batch)
    await api.ok("POST", path, batch)  # less than the limit was there
    text, details = await _refused(api, path, batch)
    assert "retainedBytes" in text
    assert "is at 2000 of 1500 (bytes)" in text
    assert "retention" in text
    assert details["ErrorInfo"]["reason"] == "RESOURCE_QUOTA_EXCEEDED"
    assert details["QuotaFailure"]["violations"][0]["subject"] == rest.project
    assert "RetryInfo" not in details  # time does not help
    assert (await _usage(rest, "retainedBytes"))["usage"] == 2_000
    assert len(await rest.drain()) == 20
    await _limit(rest, retainedBytes=1_499)  # it looks
    assert (await _usage(rest, "retainedBytes"))["usage"] == 0
    await api.ok("POST", path, batch)


async def test_quotas_are_told_with_their_usage_changed_one_by_one_and_set_back(rest: Rest) -> None:
    await rest.create_topic()
    set_here = await _limit(rest, publishMessages=1_000, topics=7)
    assert set_here["limits"] == {"publishMessages": 1_000, "topics": 7}
    await rest.publish(*["x"] * 50)
    assert await eventually(lambda: _used(rest))
    assert (await _limit(rest, topics=-1))["limits"] == {"publishMessages": 1_000, "topics": -1}
    assert "limit" not in await _usage(rest, "topics")
    assert (await _usage(rest, "topics"))["usage"] == 1
    assert (await _limit(rest, topics=None, publishMessages=None))["limits"] == {}


async def test_quotas_that_somebody_else_has_changed_are_not_set(rest: Rest) -> None:
    read = await rest.ok("GET", f"{rest.project}/quotas")
    changed = await _limit(rest, topics=7)
    assert changed["etag"] != read["etag"]
    stale = {"limits": {"topics": 9}, "etag": read["etag"]}
    code, said = await rest.error("PATCH", f"{rest.project}/quotas", stale)
    assert (code, said.startswith("The quotas have changed since they were read")) == ("ABORTED", True), said
    assert (await rest.ok("GET", f"{rest.project}/quotas"))["limits"] == {"topics": 7}
    again = await rest.ok("PATCH", f"{rest.project}/quotas", {**stale, "etag": changed["etag"]})
    assert again["limits"] == {"topics": 9}
    assert (await _limit(rest, topics=None))["etag"] == read["etag"]


async def _used(rest: Rest) -> bool:
    return bool((await _usage(rest, "publishMessages"))["usage"] > 0)


@pytest.mark.parametrize(
    "body",
    [
        {"limits": {"topics": 5, "messages": 1}},
        {"limits": {"topics": 5}, "principalLimits": {"topics": 1}},
        {"limits": {"topics": -2}},
        {"limits": {"topics": 1.5}},
        {"limits": {"topics": "many"}},
        {"limit": {"topics": 5}},
        {"limits": [5]},
    ],
)
async def test_quotas_that_cannot_be_are_refused_and_nothing_changes(rest: Rest, body: Json) -> None:
    code, _ = await rest.error("PATCH", f"{rest.project}/quotas", body)
    assert code == "INVALID_ARGUMENT"
    assert (await rest.ok("GET", f"{rest.project}/quotas"))["limits"] == {}


async def test_processes_keep_a_limit_together_and_hear_of_changes(clone: Callable[[], Any], project: str) -> None:
    with clone() as database_url:
        async with AsyncExitStack() as stack:
            one, other = [
                Rest(await stack.enter_async_context(running_in_process(broker)), project)
                for broker in (Broker(AppConfig(database_url=database_url, pool_size=2)) for _ in range(2))
            ]
            await one.create_topic()
            await _limit(one, publishMessages=1)
            await one.ok("POST", f"{one.topic()}:publish", {"messages": _MANY})

            async def refused_by_the_other() -> bool:
                response = await other.call("POST", f"{one.topic()}:publish", {"messages": _MANY[:1]})
                return response.status_code == 429

            await eventually(refused_by_the_other)
            await _limit(one, publishMessages=None)

            async def taken_by_the_other() -> bool:
                return not await refused_by_the_other()

            await eventually(taken_by_the_other)


async def test_processes_count_connections_together(clone: Callable[[], Any], project: str) -> None:
    with clone() as database_url:
        async with AsyncExitStack() as stack:
            one, other = [
                Rest(await stack.enter_async_context(running_in_process(broker)), project)
                for broker in (Broker(AppConfig(database_url=database_url, pool_size=2)) for _ in range(2))
            ]
            await one.create_topic()
            await one.create_subscription()
            await _limit(one, connections=1)
            pulling = asyncio.create_task(one.pull(wait=True))

            async def known() -> bool:
                return bool((await _usage(other, "connections"))["usage"] == 1)

            await eventually(known)
            path = f"{one.subscription()}:pull"
            text, details = await _refused(other, path, {"maxMessages": 1})
            assert "is at 1 of 1 (connections)" in text
            assert details["ErrorInfo"]["reason"] == "RESOURCE_QUOTA_EXCEEDED"
            assert "RetryInfo" in details
            await one.publish("for the pull")
            assert len(await pulling) == 1


async def test_what_was_taken_too_much_is_not_forgotten_while_nothing_more_is_taken(
    clone: Callable[[], Any], project: str
) -> None:
    with clone() as database_url:
        async with own_broker(database_url, project=project, pool_size=2) as (broker, rest):
            await rest.create_topic()
            await _limit(rest, publishMessages=1)
            await rest.ok("POST", f"{rest.topic()}:publish", {"messages": _MANY})
            await broker.core.admission.balance()
            for _ in range(3):  # every half minute; what is not in use is let go
                await broker.core.admission.load()
                await _refused(rest, f"{rest.topic()}:publish", {"messages": _MANY})


async def test_the_log_tells_of_a_quota_once_and_counts_the_rest(
    clone: Callable[[], Any], project: str, caplog: pytest.LogCaptureFixture
) -> None:
    with clone() as database_url:
        async with own_broker(database_url, project=project, pool_size=2) as (_, rest):
            await rest.create_topic()
            await _limit(rest, publishMessages=0)
            for _ in range(5):
                await _refused(rest, f"{rest.topic()}:publish", {"messages": _MANY})
    lines = [line for line in caplog.messages if "quota publishMessages" in line and "is used up" in line]
    assert len([line for line in lines if "calls are refused" in line and project.split("/")[1] in line]) == 1


async def test_the_installation_has_defaults(clone: Callable[[], Any], project: str) -> None:
    config = {"quotas": "topics=1,publishMessages=1", "pool_size": 2}
    with clone() as database_url:
        async with own_broker(database_url, project=project, **config) as (_, rest):
            await rest.create_topic()
            assert (await rest.call("PUT", rest.topic("second"), {})).status_code == 429
            await rest.ok("POST", f"{rest.topic()}:publish", {"messages": _MANY})
            await _refused(rest, f"{rest.topic()}:publish", {"messages": _MANY})
            await _limit(rest, topics=-1, publishMessages=-1)
            await rest.create_topic("second")
            await rest.publish("again")
