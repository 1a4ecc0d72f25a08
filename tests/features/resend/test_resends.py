"""Resending over REST: a retained message comes once more, to one subscription; an extension (G2)."""

import pytest

from tests.fixtures.broker import Json, Rest, message, text

pytestmark = pytest.mark.own_broker(min_delivery_attempts=1, dead_letter_interval_seconds=0.05)


async def _resend(rest: Rest, **body: object) -> Json:
    return await rest.ok("POST", f"{rest.subscription()}:resend", body)


async def test_what_was_acked_comes_once_more_under_its_id_and_to_nobody_else(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(retainAckedMessages=True, enableMessageOrdering=True)
    await rest.create_subscription("bystander")
    ids = [id_ for n in range(4) for id_ in await rest.publish(message(f"m{n}", orderingKey="k"))]
    await rest.drain()
    await rest.drain("bystander")
    assert (await _resend(rest, messageId=ids[2]))["results"] == [{"messageId": ids[2], "outcome": "resent"}]
    answer = await _resend(rest, messageIds=[ids[2], ids[0], "1000000000099999", ids[0]])
    assert answer["counts"] == {"waiting": "1", "resent": "1", "unknown": "1"}
    received = await rest.drain()
    assert [each["message"]["messageId"] for each in received] == [ids[0], ids[2]]
    assert await rest.pull("bystander") == []
    report = await rest.ok("GET", f"{rest.subscription()}/messages/{ids[2]}")
    assert ("REPLAYED", "resent") in [(each["event"], each.get("answer")) for each in report["timeline"]]
    assert [text(each) for each in await rest.drain()] == []


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({}, "INVALID_ARGUMENT", "either messageId"),
        ({"messageId": "1000000000000001", "messageIds": ["1000000000000001"]}, "INVALID_ARGUMENT", "either"),
        ({"messageIds": ["x"]}, "INVALID_ARGUMENT", "x"),
        ({"messageIds": ["1000000000000001"] * 1001}, "INVALID_ARGUMENT", "1001"),
        ({"messageId": "999000000000000001"}, "NOT_FOUND", "messageId=999000000000000001"),
    ],
)
async def test_what_cannot_be_meant_is_refused(rest: Rest, body: Json, code: str, said: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    answered, why = await rest.error("POST", f"{rest.subscription()}:resend", body)
    assert (answered, said in why) == (code, True), why


@pytest.mark.parametrize("filter_", ['attributes.env = "prod"', "body.total > 1"])
async def test_one_that_the_filter_matches_is_delivered_again(rest: Rest, filter_: str) -> None:
    await rest.create_topic(messageRetentionDuration="3600s")
    await rest.create_subscription(filter=filter_)
    [matching] = await rest.publish(message('{"total": 2}', {"env": "prod"}))
    await rest.drain()
    answer = await rest.ok("POST", f"{rest.subscription()}:resend", {"messageId": matching})
    assert answer["counts"] == {"resent": "1"}
    assert [each["message"]["messageId"] for each in await rest.drain()] == [matching]


async def test_one_that_the_filter_does_not_match_is_refused(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter='attributes.env = "prod"')
    [plain] = await rest.publish("a")
    why = await rest.error("POST", f"{rest.subscription()}:resend", {"messageId": plain})
    assert why[0] == "FAILED_PRECONDITION", why
