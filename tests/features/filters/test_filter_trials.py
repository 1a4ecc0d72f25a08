"""TestFilter over REST: what a filter would match, without a subscription that has it (A3)."""

from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest, message

PROD = 'attributes.env = "prod"'


@pytest.fixture
async def ids(rest: Rest) -> list[str]:
    """A topic with the subscription `sub`; the ids of its messages, of which the first and the third match PROD."""
    await rest.create_topic()
    await rest.create_subscription()
    return await rest.publish(
        message("a", {"env": "prod", "n": "é\u2028"}, orderingKey="k"),
        message("b", {"env": "test"}, orderingKey="k"),
        message("c", {"env": "prod"}, orderingKey="k"),
        message("d", orderingKey="k"),
    )


async def _test(rest: Rest, filter_: str = "", *, of: str | None = None, **page: Any) -> Json:
    return await rest.ok("POST", f"{of or rest.topic()}:testFilter", {"filter": filter_, **page})


async def _position(rest: Rest) -> Json:
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    return {field: value for field, value in position.items() if not field.endswith("Age")}


def _ids(answer: Json) -> list[str]:
    return [matched["messageId"] for matched in answer.get("matchedMessages", [])]


async def test_it_tells_what_matches_newest_first(rest: Rest, ids: list[str]) -> None:
    answer = await _test(rest, PROD)
    assert _ids(answer) == [ids[2], ids[0]]
    assert (answer["matchedMessageCount"], answer["scannedMessageCount"]) == (2, 4)
    assert "nextPageToken" not in answer
    oldest = answer["matchedMessages"][1]
    [received] = [m["message"] for m in await rest.pull() if m["message"]["messageId"] == ids[0]]
    whole = (await _test(rest, PROD, includeData=True))["matchedMessages"][1]
    assert whole == received, "as it is delivered"
    del received["data"]
    assert oldest == received, "all of the message but its data"


async def test_it_agrees_with_a_subscription_that_has_the_filter(rest: Rest, ids: list[str]) -> None:
    for number, filter_ in enumerate(['NOT attributes:env OR attributes.env = "test"', 'hasAttribute("n")', PROD]):
        await rest.create_subscription(f"filtered{number}", filter=filter_)
    await rest.publish(message(attributes={"env": "prod", "n": ""}), message(attributes={"x": ""}))
    for number in range(3):
        delivered = [m["message"]["messageId"] for m in await rest.pull(f"filtered{number}")]
        own = _ids(await _test(rest, of=rest.subscription(f"filtered{number}")))
        assert own[::-1] == delivered, "not the first four, which were there before it"


async def test_of_a_subscription_it_shows_nothing_that_the_subscription_does_not_get(rest: Rest) -> None:
    """E2: who may consume it may not read the rest of the topic."""
    await rest.create_topic()
    await rest.create_subscription("all")
    [before] = await rest.publish(message("before", {"env": "prod"}))
    await rest.create_subscription("prod", filter=PROD)
    secret, new = await rest.publish(message("s", {"env": "test"}), message("n", {"env": "prod", "n": ""}))
    for filter_ in (
        "",
        PROD,
        "attributes:env",
        'NOT attributes.env = "test"',
        'attributes:n OR attributes.env = "test"',
    ):
        assert _ids(await _test(rest, filter_, of=rest.subscription("prod"), includeData=True)) == [new], filter_
    assert _ids(await _test(rest, 'attributes.env = "test"', of=rest.subscription("prod"))) == []
    assert _ids(await _test(rest, of=rest.subscription("all"))) == [new, secret, before]
    await rest.ok(
        "PATCH",
        rest.topic(),
        {"topic": {"messageRetentionDuration": "600s"}, "updateMask": "messageRetentionDuration"},
    )
    assert _ids(await _test(rest, of=rest.subscription("prod"))) == [new, before], "it could seek there now"


async def test_nothing_is_delivered_or_changed_by_it(rest: Rest, ids: list[str]) -> None:
    position = await _position(rest)
    await _test(rest, PROD)
    await _test(rest, PROD, of=rest.subscription())
    assert await _position(rest) == position
    assert len(await rest.pull()) == len(ids)
    assert _ids(await _test(rest)) == ids[::-1], "also what is out"


async def test_it_is_paged(rest: Rest, ids: list[str]) -> None:
    first = await _test(rest, pageSize=3)
    second = await _test(rest, pageSize=3, pageToken=first["nextPageToken"])
    assert _ids(first) + _ids(second) == ids[::-1]
    assert "nextPageToken" not in second


async def test_without_a_subscription_and_a_retention_nothing_is_retained(rest: Rest) -> None:
    await rest.create_topic()
    await rest.publish("a")
    assert await _test(rest) == {"matchedMessageCount": 0, "scannedMessageCount": 0}
    retention = {"topic": {"messageRetentionDuration": "600s"}, "updateMask": "messageRetentionDuration"}
    await rest.ok("PATCH", rest.topic(), retention)
    assert (await _test(rest))["matchedMessageCount"] == 1


@pytest.mark.usefixtures("ids")
async def test_an_invalid_filter_is_refused_with_its_place_and_what_was_expected(rest: Rest) -> None:
    for of in (rest.topic(), rest.subscription()):
        code, complaint = await rest.error("POST", f"{of}:testFilter", {"filter": "attributes.env = prod"})
        assert code == "INVALID_ARGUMENT"
        assert "at column 18" in complaint
        assert "expected a string in double quotes" in complaint


@pytest.mark.usefixtures("ids")
async def test_a_token_of_another_topic_or_of_nothing_is_refused(rest: Rest) -> None:
    await rest.create_topic("other")
    await rest.create_subscription("other-sub", "other")
    token = (await _test(rest, pageSize=1))["nextPageToken"]
    for of, wrong in ((rest.topic("other"), token), (rest.topic(), token[:-4]), (rest.topic(), "_" * 32)):
        body = {"pageToken": wrong}
        assert await rest.error("POST", f"{of}:testFilter", body) == (
            "INVALID_ARGUMENT",
            f"Invalid page token given (page_token={wrong}).",
        )
    assert (await rest.error("POST", f"{rest.topic()}:testFilter", {"pageSize": -1}))[0] == "INVALID_ARGUMENT"


@pytest.mark.usefixtures("ids")
async def test_a_deleted_topic_is_tested_by_its_subscriptions_only(rest: Rest) -> None:
    await rest.ok("DELETE", rest.topic())
    assert (await rest.error("POST", f"{rest.topic()}:testFilter", {}))[0] == "NOT_FOUND"
    assert (await _test(rest, PROD, of=rest.subscription()))["matchedMessageCount"] == 2
    await rest.ok("POST", f"{rest.subscription()}:detach", {})
    assert (await rest.error("POST", f"{rest.subscription()}:testFilter", {}))[0] == "FAILED_PRECONDITION"
    assert (await rest.error("POST", f"{rest.subscription('none')}:testFilter", {}))[0] == "NOT_FOUND"
