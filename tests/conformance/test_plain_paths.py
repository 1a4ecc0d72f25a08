"""The plain-path spellings of the calls (A12): the same meaning without a colon verb."""

import pytest

from tests.fixtures.broker import Json, Rest, message, text


@pytest.fixture(autouse=True)
async def subscription(rest: Rest) -> str:
    """A topic with the subscription `sub`."""
    await rest.create_topic()
    await rest.create_subscription()
    return rest.subscription()


async def test_a_message_goes_round_on_plain_paths(rest: Rest, subscription: str) -> None:
    """A12, A1, A7: publish, pull, nack, pull again, acknowledge."""
    body: Json = {"messages": [message(data) for data in "abc"]}
    assert len((await rest.ok("POST", f"{rest.topic()}/publish", body))["messageIds"]) == 3
    pull = f"{subscription}/pull?maxMessages=2&returnImmediately=true"
    first = (await rest.ok("POST", pull))["receivedMessages"]
    assert [text(m) for m in first] == ["a", "b"]
    body = {"ackIds": [first[1]["ackId"]], "ackDeadlineSeconds": 0}
    assert await rest.ok("POST", f"{subscription}/modifyAckDeadline", body) == {}
    second = (await rest.ok("POST", pull))["receivedMessages"]
    assert [text(m) for m in second] == ["b", "c"] or sorted(text(m) for m in second) == ["b", "c"]
    ids = [m["ackId"] for m in [first[0], *second]]
    assert await rest.ok("POST", f"{subscription}/acknowledge", {"ackIds": ids}) == {}
    assert await rest.ok("POST", pull) == {}


async def test_pull_takes_its_fields_from_the_query_or_the_body(rest: Rest, subscription: str) -> None:
    """A12: in camelCase or snake_case, or some in each."""
    await rest.publish(*"abcd")
    for query, body in [
        ("?max_messages=1&return_immediately=true", None),
        ("?maxMessages=1", {"returnImmediately": True}),
        ("", {"maxMessages": 1, "returnImmediately": True}),
        ("?maxMessages=1&returnImmediately=1", {}),
    ]:
        answer = await rest.ok("POST", f"{subscription}/pull{query}", body)
        assert len(answer["receivedMessages"]) == 1, query


@pytest.mark.parametrize("query", ["maxMessages=abc", "maxMessages=0", "maxMessages=-1", "maxMessages="])
async def test_a_bad_number_in_the_query_is_refused(rest: Rest, subscription: str, query: str) -> None:
    """A12: with INVALID_ARGUMENT, as in a body."""
    assert (await rest.error("POST", f"{subscription}/pull?{query}"))[0] == "INVALID_ARGUMENT"


async def test_plain_paths_refuse_what_the_verbs_refuse(rest: Rest, subscription: str) -> None:
    """A12: one meaning, two spellings."""
    for path, verb, body in [
        (rest.topic(), "publish", {"messages": []}),
        (rest.topic("missing"), "publish", {"messages": [message("x")]}),
        (subscription, "acknowledge", {"ackIds": ["bogus"]}),
        (subscription, "modifyAckDeadline", {"ackIds": ["bogus"], "ackDeadlineSeconds": 601}),
        (rest.subscription("missing"), "pull", {"maxMessages": 1}),
    ]:
        assert await rest.error("POST", f"{path}/{verb}", body) == await rest.error("POST", f"{path}:{verb}", body)


async def test_put_with_a_mask_creates_the_subscription(rest: Rest) -> None:
    """A12: one that is not there yet, with all that the body has."""
    body = {"topic": rest.topic(), "labels": {"a": "b"}}
    created = await rest.ok("PUT", f"{rest.subscription('new')}?updateMask=labels", body)
    assert created["labels"] == {"a": "b"}
    assert created["topic"] == rest.topic()
    assert await rest.ok("GET", rest.subscription("new")) == created


async def test_put_with_a_mask_updates_the_subscription_that_exists(rest: Rest, subscription: str) -> None:
    """A12: as a patch does; what is outside the mask stays."""
    await rest.publish("kept")
    body: Json = {"topic": rest.topic(), "labels": {"a": "b"}, "ackDeadlineSeconds": 60}
    for parameter in ("updateMask", "update_mask"):
        updated = await rest.ok("PUT", f"{subscription}?{parameter}=labels", body)
        assert updated["labels"] == {"a": "b"}
        assert updated["ackDeadlineSeconds"] == 10
    assert [text(m) for m in await rest.drain()] == ["kept"]


async def test_put_with_a_mask_needs_no_topic_to_update(rest: Rest, subscription: str) -> None:
    """A12: the mask names what is looked at."""
    updated = await rest.ok("PUT", f"{subscription}?updateMask=labels", {"labels": {"a": "b"}})
    assert updated["labels"] == {"a": "b"}
    assert updated["topic"] == rest.topic()


async def test_put_with_a_mask_updates_a_subscription_whose_topic_is_deleted(rest: Rest, subscription: str) -> None:
    """A12: no topic is needed to change labels."""
    await rest.ok("DELETE", rest.topic())
    body = {"topic": rest.topic(), "labels": {"a": "b"}}
    updated = await rest.ok("PUT", f"{subscription}?updateMask=labels", body)
    assert (updated["labels"], updated["topic"]) == ({"a": "b"}, "_deleted-topic_")


async def test_put_with_a_mask_of_an_immutable_field_is_refused(rest: Rest, subscription: str) -> None:
    """A12: as a patch is."""
    status, text_ = await rest.error("PUT", f"{subscription}?updateMask=topic", {"topic": rest.topic()})
    assert status == "INVALID_ARGUMENT"
    assert "is not mutable" in text_


async def test_put_without_a_mask_is_a_conflict(rest: Rest, subscription: str) -> None:
    """A12: as Google has it."""
    assert (await rest.error("PUT", subscription, {"topic": rest.topic()}))[0] == "ALREADY_EXISTS"
