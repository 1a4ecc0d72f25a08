"""The history of metrics: what a request must satisfy."""

import pytest

from tests.fixtures.broker import Rest

PUBLISHED, SENT = "pubsub_topic_published_messages_total", "pubsub_subscription_sent_messages_total"


async def test_what_was_never_counted_has_no_series(rest: Rest) -> None:
    await rest.create_topic()
    for resource in (rest.topic(), rest.project, ""):
        answer = await rest.ok(
            "GET",
            f"{rest.project}/timeSeries",
            params={"metric": "pubsub_topic_retracted_messages_total", "resource": resource},
        )
        assert "timeSeries" not in answer
        assert (answer["unit"], answer["alignmentPeriod"]) == ("1", "10s")


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({}, "INVALID_ARGUMENT", ["'metric'", PUBLISHED, "pubsub_subscription_num_undelivered_messages"]),
        (
            {"metric": "pubsub_sequencing_seconds"},
            "INVALID_ARGUMENT",
            ["'metric'", "pubsub_sequencing_seconds", SENT],
        ),
        ({"metric": PUBLISHED, "resource": "{topic}s"}, "NOT_FOUND", ["Topic not found"]),
        (
            {"metric": SENT, "resource": "{project}/subscriptions/none"},
            "NOT_FOUND",
            ["Subscription does not exist"],
        ),
        ({"metric": SENT, "resource": "{topic}"}, "INVALID_ARGUMENT", ["'resource'", "{project}/subscriptions/ID"]),
        (
            {"metric": PUBLISHED, "resource": "topics/topic"},
            "INVALID_ARGUMENT",
            ["'resource'", "{project}/topics/ID"],
        ),
        ({"metric": PUBLISHED, "resource": "projects/other/topics/topic"}, "INVALID_ARGUMENT", ["'resource'"]),
        ({"metric": PUBLISHED, "resource": "{project}/topics/a\0b"}, "INVALID_ARGUMENT", ["topics"]),
        ({"metric": PUBLISHED, "interval": "1h"}, "INVALID_ARGUMENT", ["'interval'", "1h", "600s"]),
        ({"metric": PUBLISHED, "interval": "0s"}, "INVALID_ARGUMENT", ["'interval'", "0s"]),
        ({"metric": PUBLISHED, "interval": "-5s"}, "INVALID_ARGUMENT", ["'interval'", "-5s"]),
        ({"metric": PUBLISHED, "interval": "1209700s"}, "INVALID_ARGUMENT", ["'interval'", "14d"]),
        ({"metric": PUBLISHED, "interval": "315576000000s"}, "INVALID_ARGUMENT", ["'interval'"]),
        ({"metric": PUBLISHED, "interval": "yesterday/"}, "INVALID_ARGUMENT", ["'interval'", "yesterday"]),
        (
            {"metric": PUBLISHED, "interval": "2100-01-01T00:00:00Z/"},
            "INVALID_ARGUMENT",
            ["'interval'", "before now"],
        ),
        (
            {"metric": PUBLISHED, "alignmentPeriod": "15s"},
            "INVALID_ARGUMENT",
            ["'alignmentPeriod'", "multiple of 10s"],
        ),
        ({"metric": PUBLISHED, "alignmentPeriod": "0s"}, "INVALID_ARGUMENT", ["'alignmentPeriod'"]),
        ({"metric": PUBLISHED, "alignmentPeriod": "1m"}, "INVALID_ARGUMENT", ["'alignmentPeriod'"]),
        (
            {"metric": PUBLISHED, "interval": "86300s", "alignmentPeriod": "10s"},
            "INVALID_ARGUMENT",
            ["'alignmentPeriod'", "multiple of 60s"],
        ),
        (
            {"metric": PUBLISHED, "interval": "864000s", "alignmentPeriod": "60s"},
            "INVALID_ARGUMENT",
            ["'alignmentPeriod'", "multiple of 600s"],
        ),
        (
            {"metric": PUBLISHED, "alignmentPeriod": "315576000000s"},
            "INVALID_ARGUMENT",
            ["'alignmentPeriod'", "at most 1209600s"],
        ),
    ],
)
async def test_a_request_that_cannot_be_answered_says_why(
    rest: Rest, query: dict[str, str], status: str, words: list[str]
) -> None:
    await rest.create_topic()
    names = {"{topic}": rest.topic(), "{project}": rest.project}
    for pattern, name in names.items():
        query = {key: value.replace(pattern, name) for key, value in query.items()}
        words = [word.replace(pattern, name) for word in words]
    found, text = await rest.error("GET", f"{rest.project}/timeSeries", params=query)
    assert found == status, text
    assert [word for word in words if word not in text] == [], text
