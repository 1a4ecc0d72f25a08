"""Failed pushes are recovered, and missing ones replayed, over REST; extensions (G2)."""

from datetime import UTC, datetime

import pytest

from tests.fixtures.broker import Json, Rest, eventually
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes

EVER = "2020-01-01T00:00:00Z"
TYPE = "type.googleapis.com/broker.v1."


pytestmark = pytest.mark.own_broker(min_delivery_attempts=1, dead_letter_interval_seconds=0.05)


@pytest.fixture
async def pushes(rest: Rest, push_sink: PushSink) -> Pushes:
    """One attempt, and a message is a dead letter."""
    await rest.create_topic(messageRetentionDuration="3600s")
    return Pushes(rest, push_sink)


async def _run(rest: Rest, verb: str, **body: object) -> Json:
    """Until it has ended."""
    started = await rest.ok("POST", f"{rest.subscription()}:{verb}", body)
    return await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})


async def test_what_pushes_failed_for_is_recovered_once(pushes: Pushes) -> None:
    rest = pushes.rest
    await rest.create_topic("dead")
    await rest.create_subscription("dead-sub", "dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
    await pushes.subscribe("/status/500", deadLetterPolicy=policy)
    await rest.create_subscription("bystander")
    await rest.publish("a", "b")

    async def given_up() -> bool:
        position = await rest.ok("GET", f"{rest.subscription('dead-sub')}/snapshot")
        return int(position["undeliveredMessages"]) == 2

    await eventually(given_up)
    mended = pushes.path()
    await pushes.push_to(mended)
    recover = f"{rest.subscription()}:recover"
    plan = await rest.ok("POST", recover, {"startTime": EVER, "validateOnly": True})
    assert (plan["response"]["chosen"], plan["metadata"]["verb"]) == ("2", "recover")
    assert plan["metadata"]["takenFrom"] == [rest.subscription("dead-sub")]
    later = {"startTime": "2100-01-01T00:00:00Z", "validateOnly": True}
    assert (await rest.ok("POST", recover, later))["response"]["chosen"] == "0"
    ended = await _run(rest, "recover", startTime=EVER, maxMessagesPerSecond=100)
    assert ended["response"] == {"@type": f"{TYPE}RecoverResponse", "redriven": "2"}
    assert sorted(await pushes.texts(mended, 2)) == ["a", "b"]
    assert not await given_up(), "their letters are gone"
    assert (await _run(rest, "recover", startTime=EVER))["metadata"]["done"] == "0"
    assert len(await rest.drain("bystander")) == 2


async def test_a_new_endpoint_is_given_what_was_published_before_it(pushes: Pushes) -> None:
    rest = pushes.rest
    await rest.publish("of before")
    first = await pushes.subscribe(extensions={"journal": {"mode": "ALL"}})
    await rest.publish("a", "b")
    assert sorted(await pushes.texts(first, 2)) == ["a", "b"]

    async def settled() -> bool:
        position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
        return "oldestUndeliveredMessageAge" not in position

    await eventually(settled)
    second = pushes.path()
    await pushes.push_to(second)
    await rest.publish("c")
    await pushes.until_taken(second, "c")
    replay = f"{rest.subscription()}:replayMissing"
    plan = await rest.ok("POST", replay, {"startTime": EVER, "validateOnly": True})
    assert (plan["response"]["@type"], plan["response"]["chosen"]) == (f"{TYPE}ReplayMissingResponse", "3")
    ended = await _run(rest, "replayMissing", startTime=EVER)
    assert ended["response"] == {"@type": f"{TYPE}ReplayMissingResponse", "replayed": "3"}
    await pushes.until_taken(second, "of before", "a", "b", "c")
    await eventually(settled)
    again = await _run(rest, "replayMissing", startTime=EVER)
    assert again["metadata"]["counts"] == {"delivered": "3"}
    assert sorted(await pushes.taken(second)) == ["a", "b", "c", "of before"], "each of them once"
    moved = await _run(rest, "replayMissing", startTime=EVER, endpointTime=_now())
    assert moved["metadata"]["counts"] == {"replayed": "4"}


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({}, "INVALID_ARGUMENT", "startTime is missing"),
        ({"startTime": "soon"}, "INVALID_ARGUMENT", "startTime"),
        ({"startTime": EVER, "maxMessagesPerSecond": 0}, "INVALID_ARGUMENT", "maxMessagesPerSecond=0"),
        ({"startTime": EVER, "until": EVER}, "INVALID_ARGUMENT", "until"),
        ({"startTime": EVER}, "FAILED_PRECONDITION", "no endpoint"),
    ],
)
async def test_what_cannot_be_is_refused_and_starts_nothing(rest: Rest, body: Json, code: str, said: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    for verb in ("recover", "replayMissing"):
        got, why = await rest.error("POST", f"{rest.subscription()}:{verb}", body)
        assert (got, said in why) == (code, True), why
        assert (await rest.error("POST", f"{rest.subscription('none')}:{verb}", {"startTime": EVER}))[
            0
        ] == "NOT_FOUND"
    assert await rest.ok("GET", f"{rest.project}/operations") == {}


async def test_a_time_after_the_endpoint_was_set_is_refused(pushes: Pushes) -> None:
    await pushes.subscribe()
    body = {"startTime": _now()}
    code, why = await pushes.rest.error("POST", f"{pushes.rest.subscription()}:replayMissing", body)
    assert (code, "before endpointTime" in why) == ("INVALID_ARGUMENT", True)
