"""Tables on a terminal of 80 columns: ids are whole, and what has no room is left out and said."""

import json
from typing import Any

import pytest

from tests.cli.client.answering import AnsweringServer
from tests.cli.client.terminal import Terminal

MESSAGE_ID, OPERATION = "1000000000000042", "0123456789abcdef0123"
LONG = "the rest of a sentence that goes on and on, for much longer than a terminal is wide " * 3
NAME = "projects/p/subscriptions/a-subscription-whose-name-is-rather-long-for-a-table"
TIME = "2026-11-23T10:00:00.000Z"
MESSAGE = {
    "messageId": MESSAGE_ID,
    "publishTime": TIME,
    "orderingKey": "customer-4711-in-the-north-of-the-country",
    "attributes": {"env": LONG},
    "data": "aGVsbG8=",
}
FAILURE = {"failTime": TIME, "messageId": MESSAGE_ID, "deliveryAttempt": 12, "status": 503, "latency": "10.000s"}
METADATA = {
    "verb": "replayMissing",
    "target": NAME[:65],
    "state": "CANCELLED",
    "done": "1000000",
    "total": "2000000",
}

TOPIC_NAME = "projects/p/topics/orders-of-customers-in-germany"
SCHEDULE = {
    "name": "projects/p/schedules/every-night-in-the-north",
    "schedule": "30 2 * * *",
    "timeZone": "Europe/Berlin",
    "state": "ACTIVE",
    "nextTime": TIME,
}
ENTRY: dict[str, Any] = {
    "timestamp": TIME,
    "protoPayload": {
        "methodName": "google.iam.admin.v1.IAM.CreateServiceAccountKey",
        "resourceName": "projects/p/serviceAccounts/billing-123",
        "status": {"code": 7, "message": LONG},
        "authenticationInfo": {"principalEmail": "deploy@a-project-with-a-long-name.iam.broker.internal"},
    },
}


@pytest.mark.parametrize(
    ("command", "answer", "ids", "left_out"),
    [
        ("push failures s", {"pushFailures": [FAILURE | {"detail": LONG}]}, [MESSAGE_ID], []),
        (
            "op list",
            {
                "operations": [
                    {"name": f"projects/p/operations/{OPERATION}", "metadata": METADATA | {"createTime": TIME}}
                ]
            },
            [OPERATION, NAME[25:65]],
            ["BEGAN", "DONE", "WHAT"],
        ),
        ("peek s", {"messages": [{"state": "OUTSTANDING", "message": MESSAGE}]}, [MESSAGE_ID], ["PUBLISHED"]),
        (
            "dlq list s",
            {"deadLetters": [{"sourceMessageId": MESSAGE_ID, "reason": LONG, "message": MESSAGE}]},
            [MESSAGE_ID],
            [],
        ),
        (
            "lag",
            {
                "subscriptions": [
                    {
                        "subscription": NAME[:55],
                        "deliveryState": "WAITING_FOR_SLOTS",
                        "oldestUndeliveredMessageAge": "100000s",
                        "undeliveredMessages": 1000000,
                        "outstandingMessages": 1000000,
                        "verdict": LONG,
                    }
                ]
            },
            [NAME[25:55], "WAITING_FOR_SLOTS"],
            ["OUTSTANDING"],
        ),
        ("audit", {"entries": [ENTRY]}, ["2026-11-23", "10:00:00Z", "billing-123"], ["PRINCIPAL"]),
        (
            "audit",
            {"entries": [{**ENTRY, "protoPayload": {**ENTRY["protoPayload"], "resourceName": NAME[:65]}}]},
            [NAME[25:65]],
            ["PRINCIPAL", "TIME"],
        ),
        (
            "schedule list",
            {"schedules": [SCHEDULE | {"topic": "projects/p/topics/orders-of-the-north"}]},
            ["every-night-in-the-north", "ACTIVE", "10:00:00Z"],
            ["TOPIC"],
        ),
        (
            "sub list",
            {"subscriptions": [{"name": NAME[:60], "topic": TOPIC_NAME, "state": "ACTIVE", "filter": LONG}]},
            [NAME[25:60], TOPIC_NAME[18:]],
            ["FILTER", "BY"],
        ),
        (
            "snapshot list",
            {"snapshots": [{"name": NAME[:60], "topic": TOPIC_NAME, "expireTime": TIME, "labels": {"a": LONG}}]},
            [NAME[25:60]],
            ["LABELS", "TOPIC"],
        ),
        (
            "topic list",
            {
                "topics": [
                    {"name": f"{TOPIC_NAME}-of-the-north-of-the-country", "schemaSettings": {"schema": NAME[:60]}}
                ]
            },
            [f"{TOPIC_NAME[18:]}-of-the-north-of-the-country"],
            ["SCHEMA"],
        ),
    ],
)
def test_ids_are_never_cut_or_folded(
    command: str, answer: object, ids: list[str], left_out: list[str], terminal: Terminal, server: AnsweringServer
) -> None:
    server.answer = (200, json.dumps(answer).encode())
    done = terminal.type(f"broker {command} --url {server.url} --project p")
    assert done.code == 0, done.text
    lines = done.text.splitlines()
    assert all(any(id_ in line.split() for line in lines) for id_ in ids), done.text
    assert max(map(len, lines)) <= 80, done.text
    said = f"Not shown on 80 columns: {', '.join(left_out)}; --json has all."
    assert (said in lines) if left_out else ("Not shown" not in done.text), done.text
    wide = terminal.pipe(f"broker {command} --url {server.url} --project p").text
    assert "Not shown" not in wide
    assert all(name in wide for name in left_out)
