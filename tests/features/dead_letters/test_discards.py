"""Discarding over REST: what is out, and dead letters by ids and by a choice; an extension (G2)."""

import pytest

from tests.features.dead_letters.test_redrive import _give_up as give_up
from tests.features.dead_letters.test_redrive import _redrive as redrive
from tests.fixtures.broker import Json, Rest, message, text

pytestmark = pytest.mark.own_broker(min_delivery_attempts=1, dead_letter_interval_seconds=0.05)


async def _discard(rest: Rest, sub: str = "", **body: object) -> Json:
    return await rest.ok("POST", f"{rest.subscription(sub) if sub else rest.subscription()}:discard", body)


async def test_dead_letters_that_a_choice_names_are_discarded_and_the_others_come_back(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pages, where there are many."""
    monkeypatch.setattr("broker.features.dead_letters.discarding.service.MAX_DISCARDED", 4)
    ids = await give_up(rest, *(message(f"m{n}", {"n": str(n % 2)}) for n in range(6)))
    out = await rest.pull("dead-sub", 1)
    first = await _discard(rest, filter='attributes.n = "0"')
    assert first["counts"] == {"discarded": "2"}
    second = await _discard(rest, filter='attributes.n = "0"', pageToken=first["nextPageToken"])
    assert [each["messageId"] for each in first["results"] + second["results"]] == ids[::2]
    assert "nextPageToken" not in second
    await rest.modify_ack_deadline(out, 0, "dead-sub")
    assert (await redrive(rest))["metadata"]["counts"] == {"redriven": "3"}
    assert [text(each) for each in await rest.drain()] == ["m1", "m3", "m5"]
    assert await rest.drain("dead-sub") == []


async def test_each_id_has_its_answer(rest: Rest) -> None:
    [dead] = await give_up(rest, "dead")
    waits, out, acked = [id_ for each in "abc" for id_ in await rest.publish(each)]
    received = {each["message"]["messageId"]: each for each in await rest.pull()}
    await rest.modify_ack_deadline([received[waits]], 0)
    await rest.acknowledge([received[acked]])
    [elsewhere] = await rest.publish("x", topic="dead")
    answer = await _discard(rest, messageIds=[dead, waits, out, acked, elsewhere, "1000000000099999"])
    outcomes = [each["outcome"] for each in answer["results"]]
    assert outcomes == ["discarded", "discarded", "discarded", "alreadySettled", "unknown", "unknown"]
    assert answer["counts"] == {"discarded": "3", "alreadySettled": "1", "unknown": "2"}
    report = await rest.ok("GET", f"{rest.subscription()}/messages/{out}")
    assert (report["state"], report["timeline"][-1]["answer"]) == ("DISCARDED", "discarded")
    assert [text(each) for each in await rest.drain("dead-sub")] == ["x"]
    assert await rest.drain() == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "either messageIds"),
        ({"messageIds": ["1000000000000001"], "filter": "attributes:a"}, "either messageIds"),
        ({"messageIds": ["x"]}, "messageId=x"),
        ({"filter": "attributes.n ="}, "filter"),
        ({"filter": "attributes:a", "pageToken": "x"}, "page"),
        ({"reasons": ["nack"], "pageToken": "999000000000000001"}, "page"),
    ],
)
async def test_what_cannot_be_meant_is_refused(rest: Rest, body: Json, said: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    code, why = await rest.error("POST", f"{rest.subscription()}:discard", body)
    assert (code, said in why) == ("INVALID_ARGUMENT", True), why
    assert (await rest.error("POST", f"{rest.subscription('none')}:discard", body))[0] in {
        "NOT_FOUND",
        "INVALID_ARGUMENT",
    }
