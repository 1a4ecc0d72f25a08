"""Lists of operations: their order, their filter, and pages while operations start."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.app.broker import Broker
from broker.features.operations import rows as store
from broker.features.operations.operation import Operation
from broker.model.operation_verb import Verb
from tests.fixtures.broker import Json, Rest, message

own_broker = pytest.mark.own_broker

NEWEST = {"orderBy": "createTime desc"}
START = datetime(2026, 1, 1, tzinfo=UTC)
ENDED = {"ended_at": START}


async def _add(broker: Broker, rest: Rest, *numbers: int, **fields: Any) -> None:
    """Adds operations that began so many seconds after START, and whose names end in these numbers."""
    async with broker.core.database.transaction() as connection:
        for number in numbers:
            at = START + timedelta(seconds=number)
            times = {"created_at": at, "updated_at": at, "next_step_at": datetime.max.replace(tzinfo=UTC)}
            made: dict[str, Any] = {"verb": Verb.REDRIVE, "target": rest.subscription(), "request": {}, **times}
            name = f"{rest.project}/operations/{number:020x}"
            operation = Operation(name=name, project=rest.project, **made | fields)
            await store.insert_operation(connection, operation=operation)
            if fields.get("ended_at") is None and "error_code" in fields:
                await store.end_operation(connection, name=name, code=fields["error_code"], message="", now=at)


async def _page(rest: Rest, query: dict[str, str]) -> tuple[list[int], str]:
    answer = await rest.ok("GET", f"{rest.project}/operations", params=query)
    numbers = [int(operation["name"].rpartition("/")[2], 16) for operation in answer.get("operations", [])]
    return numbers, answer.get("nextPageToken", "")


async def _all(rest: Rest, **query: str) -> list[int]:
    found, token = await _page(rest, query)
    while token:
        more, token = await _page(rest, query | {"pageToken": token})
        found += more
    return found


@own_broker
async def test_they_are_listed_in_either_order(broker: Broker, rest: Rest) -> None:
    await _add(broker, rest, *range(1, 8), **ENDED)
    await _add(broker, Rest(rest.client, f"{rest.project}0"), 9, **ENDED)  # of a project whose name sorts behind
    for order in ({}, {"orderBy": "createTime"}, {"orderBy": " createTime  asc"}):
        assert await _all(rest, pageSize="3", **order) == [1, 2, 3, 4, 5, 6, 7]
    for size in ("1", "3", "7", "100"):
        assert await _all(rest, pageSize=size, **NEWEST) == [7, 6, 5, 4, 3, 2, 1]
    assert await _all(rest, pageSize="2", order_by="createTime desc") == [7, 6, 5, 4, 3, 2, 1]


@own_broker
async def test_pages_skip_and_repeat_nothing_while_a_thousand_operations_start_and_are_deleted(
    broker: Broker, rest: Rest
) -> None:
    dice = random.Random(20261127)
    there = list(range(2, 2_002, 2))
    await _add(broker, rest, *there, **ENDED)
    kept, found, token, begun = set(there), list[int](), "", 10_001
    while True:
        page, token = await _page(rest, {"pageSize": "100", "pageToken": token, **NEWEST})
        found += page
        if not token:
            break
        await _add(broker, rest, *range(begun, begun + 20), **ENDED)
        begun += 20
        gone = dice.choice(sorted(kept))  # whether it was on a page before or would come
        kept.discard(gone)
        await rest.ok("DELETE", f"{rest.project}/operations/{gone:020x}")
        last = await rest.call("GET", f"{rest.project}/operations/{page[-1]:020x}")
        if last.status_code == 200:  # the place where the next page begins
            await rest.ok("DELETE", f"{rest.project}/operations/{page[-1]:020x}")
            kept.discard(page[-1])
    assert len(found) == len(set(found))
    assert found == sorted(found, reverse=True)
    assert kept <= set(found) <= set(there)


@own_broker
async def test_they_are_filtered_by_state_verb_target_and_principal(broker: Broker, rest: Rest) -> None:
    of = {"target": f"{rest.project}/subscriptions/billing", "started_by": "user:a@b.c"}
    await _add(broker, rest, 1, **ENDED, **of)
    await _add(broker, rest, 2, verb=Verb.COPY, target=f"{rest.project}/topics/orders")
    await _add(broker, rest, 3, error_code="CANCELLED", started_by="user:a@b.cc")
    await _add(broker, rest, 4, error_code="NOT_FOUND", target=f"{rest.project}/subscriptions/bill_ng")
    for text, expected in {
        "state=SUCCEEDED": [1],
        "state = RUNNING": [2],
        "state=CANCELLED": [3],
        'state="FAILED"': [4],
        "state!=RUNNING": [1, 3, 4],
        "verb=copy": [2],
        "verb!=copy AND state!=SUCCEEDED": [3, 4],
        f"target={of['target']}": [1],
        f"target={rest.project}/subscriptions/bill*": [1, 4],
        f"target={rest.project}/subscriptions/bill_*": [4],  # _ is no pattern
        f"target!={rest.project}/subscriptions/*": [2],
        "target:orders": [2],
        'startedBy="user:a@b.c"': [1],
        'startedBy="user:a@b.c*"': [1, 3],
        'startedBy=""': [2, 4],
    }.items():
        assert await _all(rest, filter=text) == expected, text
        assert await _all(rest, filter=text, pageSize="1", **NEWEST) == expected[::-1], text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"orderBy": "updateTime"}, "orderBy must be createTime or createTime desc (orderBy=updateTime)."),
        ({"orderBy": "createTime desc desc"}, "orderBy must be createTime or createTime desc"),
        ({"filter": "state=GONE"}, "filter: state is one of RUNNING, SUCCEEDED, CANCELLED, FAILED, not 'GONE'."),
        ({"filter": "state:RUN"}, "filter: state cannot be compared by :."),
        ({"filter": "verb>copy"}, "filter: verb cannot be compared by >."),
        ({"filter": "age=1"}, "filter: age cannot be compared; startedBy, state, target, verb can."),
        ({"filter": "running"}, "filter is not valid at 'running': it is comparisons such as state=RUNNING"),
        ({"filter": "verb=" + "x" * 1_000}, "filter has 1005 characters; 1000 are the most."),
        ({"pageToken": "x", **NEWEST}, "Invalid page token given (page_token=x)."),
    ],
)
async def test_what_is_no_order_and_no_filter_is_refused(rest: Rest, query: dict[str, str], said: str) -> None:
    refused = await rest.call("GET", f"{rest.project}/operations", params=query)
    assert (refused.status_code, said in refused.json()["error"]["message"]) == (400, True), refused.text


@own_broker
async def test_the_token_of_one_order_is_refused_in_the_other(broker: Broker, rest: Rest) -> None:
    await _add(broker, rest, 1, 2, **ENDED)
    _, oldest = await _page(rest, {"pageSize": "1"})
    _, newest = await _page(rest, {"pageSize": "1", **NEWEST})
    for query in ({"pageToken": oldest, **NEWEST}, {"pageToken": newest}):
        refused = await rest.call("GET", f"{rest.project}/operations", params=query)
        assert (refused.status_code, "Invalid page token" in refused.text) == (400, True)


async def _started(rest: Rest, path: str, body: Json) -> Json:
    name = (await rest.ok("POST", path, body))["name"]
    operation = await rest.ok("GET", name)
    assert operation["metadata"]["verb"] in path
    return operation


async def test_an_operation_shows_the_request_that_started_it(rest: Rest) -> None:
    for topic in ("topic", "other", "failed"):
        await rest.ok("PUT", rest.topic(topic))
    policy = {"deadLetterTopic": rest.topic("failed"), "maxDeliveryAttempts": 5}
    await rest.ok("PUT", rest.subscription(), {"topic": rest.topic(), "deadLetterPolicy": policy})
    await rest.ok("POST", f"{rest.topic()}:publish", {"messages": [message("x")]})
    copy = {"targetTopic": rest.topic("other"), "filter": "attributes:env", "maxMessagesPerSecond": 100}
    redrive = {"reasons": ["reject"], "endTime": "2030-01-01T00:00:00Z"}
    for path, body in {
        f"{rest.topic()}:copy": copy,
        f"{rest.subscription()}:purge": {"filter": "attributes:env", "before": "2030-01-01T00:00:00Z"},
        f"{rest.subscription()}:redrive": redrive,
    }.items():
        operation = await _started(rest, path, body)
        assert operation["metadata"]["request"] == body, path
    listed = (await rest.ok("GET", f"{rest.project}/operations", params={**NEWEST, "pageSize": "1"}))["operations"]
    assert listed[0]["metadata"]["request"] == redrive
