"""The checks of the overview: what makes each of them find something."""

import html
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from broker.app.broker import Broker
from broker.console import checks
from broker.console.api import Json
from broker.console.checks import Finding
from broker.console.page import Block
from broker.console.pages.delivering import by_status, changes, stuck_keys_of
from broker.model.timestamps import format_timestamp
from tests.fixtures.broker import Rest, eventually

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PROJECT = "projects/p"
SUBSCRIPTION = f"{PROJECT}/subscriptions/s"


async def findings(rest: Rest) -> list[str]:
    """The findings of the overview as text."""
    page = (await rest.client.get(f"/console/{rest.project}")).text
    found = re.findall(r'<li id="f\d+">(.+?)</li>', page)
    return [html.unescape(re.sub(r"<[^>]+>", "", each)) for each in found]


async def test_a_frozen_topic(rest: Rest) -> None:
    await rest.create_topic()
    await rest.ok("POST", f"{rest.topic()}:freeze", {"reason": "a migration"})
    [frozen] = [each for each in await findings(rest) if "frozen" in each]
    assert "Critical" in frozen
    assert "topic It is frozen and refuses publishes: a migration." in frozen
    await rest.ok("POST", f"{rest.topic()}:unfreeze", {})
    assert not [each for each in await findings(rest) if "frozen" in each]


async def test_a_quota_that_is_nearly_or_wholly_used(rest: Rest) -> None:
    await rest.create_topic()
    await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": {"topics": 1, "subscriptions": 5}})
    [found] = [each for each in await findings(rest) if "quota" in each.lower()]
    assert "Critical" in found
    assert "100 % of topics are used: 1 of 1. More is refused." in found


@pytest.mark.own_broker(console="on")
async def test_publishes_that_a_quota_refuses(rest: Rest, broker: Broker) -> None:
    await rest.create_topic("clicks")
    await rest.ok("PATCH", f"{rest.project}/quotas", {"limits": {"publishMessages": 1}})

    async def refused() -> bool:
        answer = await rest.call("POST", f"{rest.topic('clicks')}:publish", {"messages": [{"data": "YQ=="}] * 20})
        return answer.status_code == 429

    await eventually(refused)
    close = broker.features["history"].close
    assert close is not None
    await close()
    [found] = [each for each in await findings(rest) if "publish request" in each]
    assert "Critical" in found
    assert "with RESOURCE_EXHAUSTED, all to clicks. Quota: publishMessages allows 1 messages a second." in found


async def test_dead_letters_of_the_last_hour(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_topic("morgue")
    await rest.create_subscription("reader", topic="morgue")
    policy = {"deadLetterTopic": rest.topic("morgue"), "maxDeliveryAttempts": 5}
    await rest.create_subscription(
        deadLetterPolicy=policy, retryPolicy={"minimumBackoff": "0s", "maximumBackoff": "0s"}
    )
    await rest.publish("one", "two")

    async def nack() -> list[str]:
        if received := await rest.pull():
            await rest.modify_ack_deadline(received, 0)
        return [each for each in await findings(rest) if "dead letters since" in each]

    [found] = await eventually(nack, seconds=100)
    assert "Critical" in found
    assert "2 dead letters since" in found


async def test_a_project_in_which_all_is_well(rest: Rest) -> None:
    await rest.create_topic()
    page = (await rest.client.get(f"/console/{rest.project}")).text
    others = [each for each in await findings(rest) if "View broker" not in each]
    assert others == []
    assert re.search(r"(Nothing needs attention|warnings?)\. \d+ of 10 checks passed\.", page)


def sentences(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(finding.state.level, finding.sentence) for finding in found]


def series(code: str, *counts: int, end: datetime = NOW, **resource: str) -> Json:
    """A time series with a point a minute, the newest first, whose period ends at `end`."""
    points = [
        {"interval": {"endTime": format_timestamp(end - number * MINUTE)}, "value": {"int64Value": str(count)}}
        for number, count in enumerate(counts)
    ]
    return {"metric": {"labels": {"code": code}}, "resource": {"labels": resource}, "points": points}


QUOTAS = Block(
    {
        "quotas": [
            {"quota": "publishRequests", "unit": "requests a second", "usage": 2},
            {"quota": "publishMessages", "unit": "messages a second", "limit": 60, "usage": 60},
            {"quota": "subscribeMessages", "unit": "messages a second", "limit": 5, "usage": 1},
        ],
        "principalLimits": {"publishRequests": 10},
    }
)


def test_publishes_that_were_refused_name_the_quota_its_unit_and_the_topic() -> None:
    answer = Block({"timeSeries": [series("OK", 10), series("NOT_FOUND", 2, 1), series("RESOURCE_EXHAUSTED", 40)]})
    of_topic = Block({"timeSeries": [series("RESOURCE_EXHAUSTED", 40, topic_id="clicks")]})
    [found] = checks.of_refused_publishes(PROJECT, answer, of_topic, QUOTAS, NOW)
    assert (found.state.level, found.name) == ("critical", f"{PROJECT}/topics/clicks")
    assert found.sentence == (
        "43 publish requests were refused in the last hour, 40 of them with RESOURCE_EXHAUSTED, all to clicks. "
        "Quota: publishMessages allows 60 messages a second, publishRequests allows each principal 10 requests a "
        "second. Slow the publishers down, or raise the quota."
    )
    assert (found.link, found.action) == (f"/console/{PROJECT}/quotas", "View quotas")
    nothing = Block({})
    ok = Block({"timeSeries": [series("OK", 1)]})
    assert not list(checks.of_refused_publishes(PROJECT, ok, nothing, QUOTAS, NOW))


def test_publishes_that_were_refused_on_several_topics_name_them() -> None:
    answer = Block({"timeSeries": [series("FAILED_PRECONDITION", 40)]})
    of_topics = Block(
        {"timeSeries": [series("FAILED_PRECONDITION", n, topic_id=name) for name, n in (("a", 10), ("b", 30))]}
    )
    [found] = checks.of_refused_publishes(PROJECT, answer, of_topics, QUOTAS, NOW)
    assert found.name == PROJECT
    assert "40 publish requests were refused in the last hour with FAILED_PRECONDITION, 30 to b and 10 to a. " in (
        found.sentence
    )


def test_refusals_that_have_ended_say_since_when() -> None:
    answer = Block({"timeSeries": [series("FAILED_PRECONDITION", 0, 0, 0, 0, 96), series("OK", 5)]})
    [found] = checks.of_refused_publishes(PROJECT, answer, Block({}), QUOTAS, NOW)
    assert (found.state.level, found.sentence) == (
        "warning",
        "96 publish requests were refused in the last hour with FAILED_PRECONDITION. "
        "None has been since 2026-01-01T23:56:00.000Z.",
    )


@pytest.mark.parametrize(("age", "expected"), [("79s", []), ("80s", ["20s"]), ("130s", ["0s"])])
def test_messages_that_are_about_to_be_deleted(age: str, expected: list[str]) -> None:
    waiting = {"subscription": SUBSCRIPTION, checks.AGE: age, "messageRetentionDuration": "100s"}
    idle = {"subscription": SUBSCRIPTION, "messageRetentionDuration": "0s"}
    found = sentences(list(checks.of_retention(Block({"subscriptions": [waiting, idle]}))))
    assert [(level, sentence.split(",")[0]) for level, sentence in found] == [
        ("critical", f"Its oldest message is deleted in {left}") for left in expected
    ]


@pytest.mark.parametrize(("expired", "sent", "expected"), [(11, 100, True), (10, 100, False), (40, 49, False)])
def test_ack_deadlines_that_pass(expired: int, sent: int, expected: bool) -> None:
    blocks = [Block({"timeSeries": [series("", count)]}) for count in (expired, sent)]
    assert bool(list(checks.of_ack_deadlines(PROJECT, *blocks, Block({}), NOW))) is expected


def test_ack_deadlines_that_pass_are_of_a_subscription_and_end() -> None:
    sent, of_each = Block({"timeSeries": [series("", 100)]}), [("s", 80), ("t", 15)]
    by_subscription = Block({"timeSeries": [series("", n, subscription_id=name) for name, n in of_each]})
    expired = Block({"timeSeries": [series("", 95)]})
    [found] = checks.of_ack_deadlines(PROJECT, expired, sent, by_subscription, NOW)
    assert (found.name, found.link) == (SUBSCRIPTION, f"/console/{SUBSCRIPTION}")
    assert found.sentence == (
        "95 % of the messages that were delivered in the last hour passed their ack deadline, 80 of the 95 of s. "
        "They are delivered again. Extend the deadline, or acknowledge sooner."
    )
    [over] = checks.of_ack_deadlines(PROJECT, expired, sent, by_subscription, NOW + 3 * MINUTE)
    assert over.sentence.endswith("80 of the 95 of s. None has been since 2026-01-02T00:00:00.000Z.")


def test_operations_that_failed_today() -> None:
    def operation(state: str, ended: str) -> Json:
        about = {"state": state, "verb": "redrive", "target": SUBSCRIPTION, "createTime": ended, "endTime": ended}
        return {"name": f"{PROJECT}/operations/o", "metadata": about, "error": {"message": "no topic"}}

    rows = [
        operation("FAILED", "2026-01-01T12:00:00Z"),
        operation("FAILED", "2025-12-31T12:00:00Z"),
        operation("SUCCEEDED", "2026-01-01T12:00:00Z"),
    ]
    assert sentences(list(checks.of_operations(Block({"operations": rows}), NOW))) == [
        ("warning", "The redrive of s failed at 2026-01-01T12:00:00Z: no topic")
    ]


def test_schedules_whose_tick_published_nothing() -> None:
    def schedule(state: str, outcome: str, due: str) -> Json:
        names = {"name": f"{PROJECT}/schedules/s"}
        if state == "PAUSED":
            names |= {"pauseTime": "2026-01-01T00:00:00Z", "pausedBy": "user:ana@example.com"}
        return {**names, "state": state, "lastOutcome": outcome, "nextTime": due}

    rows = [
        schedule("ACTIVE", "REFUSED", "2026-01-03T00:00:00Z"),
        schedule("ACTIVE", "PUBLISHED", "2026-01-01T23:58:00Z"),
        schedule("PAUSED", "PUBLISHED", "2026-01-01T23:58:00Z"),
        schedule("ACTIVE", "PUBLISHED", "2026-01-01T23:59:30Z"),
    ]
    assert sentences(list(checks.of_schedules(Block({"schedules": rows}), NOW))) == [
        ("warning", "Its last tick was refused by its topic, and published nothing."),
        (
            "warning",
            "Its tick of 2026-01-01T23:58:00Z has not happened. Check that a broker process runs its jobs.",
        ),
        (
            "paused",
            "It was paused at 2026-01-01T00:00:00Z by user:ana@example.com, and publishes nothing until it is "
            "resumed.",
        ),
    ]


def test_what_the_broker_finds_about_itself() -> None:
    rows = [
        {"check": "disk", "severity": "ERROR", "sentence": "disk: 99 % full.", "nextStep": "free some"},
        {"check": "schema", "severity": "OK", "sentence": "schema: fine."},
    ]
    assert sentences(list(checks.of_broker(Block({"findings": rows})))) == [
        ("critical", "99 % full. Next: free some.")
    ]


@pytest.mark.parametrize(
    ("incoming", "outgoing", "said"),
    [
        (5.0, 4.0, "It falls further behind: 5 a second come in, 4 are acknowledged."),
        (4.0, 4.0, "It does not catch up: as many are acknowledged as come in, 4 a second."),
        (0.0, 0.0, "None was acknowledged between the last two samples."),
        (3.0, 0.0, "None was acknowledged between the last two samples, while 3 messages a second came in."),
        (1.0, 11.0, "it has caught up in 1m40s"),
        (None, 4.0, "cannot keep up."),
    ],
)
def test_a_subscription_that_is_slow_catches_up_or_does_not(
    incoming: float | None, outgoing: float, said: str
) -> None:
    one = {
        "subscription": SUBSCRIPTION,
        "deliveryState": "SLOW_CONSUMERS",
        "verdict": "1 client cannot keep up.",
        "undeliveredMessages": 1_000,
        "outgoingMessagesPerSecond": outgoing,
    } | ({} if incoming is None else {"incomingMessagesPerSecond": incoming})
    [finding] = checks.of_deliveries(Block({"subscriptions": [one]}))
    assert said in finding.sentence


def test_requests_to_an_endpoint_by_status() -> None:
    def minute(status: str, outcome: str, requests: int, latency: str) -> Json:
        return {"status": status, "outcome": outcome, "requests": str(requests), "averageLatency": latency}

    rows = [
        minute("503", "FAILED", 1, "0.3s"),
        minute("200", "DELIVERED", 99, "0.010s"),
        minute("503", "FAILED", 3, "0.1s"),
    ]
    assert [(one.status, one.state.level, one.requests, one.share, one.latency) for one in by_status(rows)] == [
        ("200", "ok", 99, "96 %", "10 ms"),
        ("503", "critical", 4, "4 %", "150 ms"),
    ]


def test_requests_that_were_accepted_late_are_shown_beside_those_in_which_they_are_counted() -> None:
    def minute(status: str, outcome: str, latency: str) -> Json:
        return {"status": status, "outcome": outcome, "requests": "13", "averageLatency": latency}

    rows = [minute("timeout", "FAILED", "10s"), minute("late", "DELIVERED", "25s")]
    assert [(one.status, one.state.word, one.state.level, one.share, one.latency) for one in by_status(rows)] == [
        ("timeout", "Failed", "critical", "100 %", "10.0 s"),
        ("late", "Delivered late", "warning", "100 %", "25.0 s"),
    ]


def test_what_is_the_brokers_comes_behind_what_is_the_projects() -> None:
    disk = {"check": "disk", "severity": "WARNING", "sentence": "disk: 90 % full."}
    lag = {"subscription": SUBSCRIPTION, "deliveryState": "NO_CONSUMERS", "verdict": "No client is pulling."}
    found = [*checks.of_broker(Block({"findings": [disk]})), *checks.of_deliveries(Block({"subscriptions": [lag]}))]
    assert [each.name for each in sorted(found, key=checks.rank)] == [SUBSCRIPTION, "disk"]


def test_test_requests_of_a_breaker_are_counted_and_not_listed() -> None:
    states = ["OPEN", "HALF_OPEN", "OPEN", "HALF_OPEN", "OPEN", "CLOSED", "HALF_OPEN", "OPEN"]
    history = [
        {"state": state, "changeTime": f"t{len(states) - number}", "status": 503}
        for number, state in enumerate(states)
    ]
    assert [(one.state.word, one.time, one.probes) for one in changes(history)] == [
        ("Open", "t4", 2),
        ("Closed", "t3", 0),
        ("Open", "t1", 0),
    ]
    assert [(one.state.word, one.probes) for one in changes(history[:2])] == [("Open", 1)]
    assert [one.state.word for one in changes(history[1:3])] == ["Half-open", "Open"]


def test_keys_that_wait_are_listed_with_the_message_that_they_wait_for() -> None:
    def entry(id_: str, key: str, state: str, holder: str = "") -> Json:
        given = {"messageId": id_, "orderingKey": key, "publishTime": f"2026-01-01T00:00:0{id_}Z"}
        return {"message": given, "state": state, "deliveryAttempt": 3} | (
            {"blockedByMessageId": holder} if holder else {}
        )

    rows = [
        entry("1", "a", "RETRYING"),
        entry("2", "b", "BLOCKED", "9"),
        entry("3", "a", "BLOCKED", "1"),
        entry("4", "a", "BLOCKED", "1"),
    ]
    [first, second] = stuck_keys_of(rows)
    assert (first.key, first.message_id, first.waiting, first.since) == ("a", "1", 2, "2026-01-01T00:00:03Z")
    assert first.state is not None
    assert first.state.word == "Retrying"
    assert (second.key, second.waiting, second.holder) == ("b", 1, None)
