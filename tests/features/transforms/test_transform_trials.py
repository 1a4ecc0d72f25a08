"""Trying transforms, which Google has over REST alone; of retained messages too (A11)."""

import base64
import json

from tests.conformance.test_transforms import MARKED, ODD, SHOUTED, texts, udf, zlib_
from tests.fixtures.broker import Json, Rest, message


async def tried(rest: Rest, **trial: object) -> list[Json]:
    answer = await rest.ok("POST", f"{rest.project}:testMessageTransforms", trial)
    steps: list[Json] = answer.get("transformedMessages", [])
    return steps


async def refused(rest: Rest, **trial: object) -> tuple[str, str]:
    return await rest.error("POST", f"{rest.project}:testMessageTransforms", trial)


def given(*transforms: Json) -> Json:
    return {"messageTransforms": list(transforms)}


async def test_a_transform_is_validated(rest: Rest) -> None:
    path = f"{rest.project}:validateMessageTransform"
    for good in (MARKED, zlib_("COMPRESS"), {"javascript_udf": {"function_name": "f", "code": "const f = m => m"}}):
        assert await rest.ok("POST", path, {"messageTransform": good}) == {}
    status, said = await rest.error("POST", path, {"messageTransform": udf("return (;")})
    assert status == "INVALID_ARGUMENT"
    assert said.startswith("Invalid message transform: messageTransform[0].javascriptUdf.code: SyntaxError: ")
    assert "line 1, column " in said
    assert "has no transform" in (await rest.error("POST", path, {}))[1]
    wrong = {"messageTransform": {"javascriptUdf": {"codes": ""}}}
    assert "'messageTransform[0].javascriptUdf': Cannot find field." in (await rest.error("POST", path, wrong))[1]


async def test_a_message_is_told_after_each_transform(rest: Rest) -> None:
    steps = await tried(
        rest,
        message=message("ab", {"k": "v"}),
        messageTransforms=given(SHOUTED, udf("return null;", "off", disabled=True), MARKED),
    )
    assert steps == [
        {"transformedMessage": message("AB", {"k": "v"})},
        {"transformedMessage": message("AB", {"k": "v", "seen": "yes"})},
    ]
    [dropped] = await tried(rest, message=message("2"), messageTransforms=given(ODD, SHOUTED))
    assert dropped == {"filteredMessage": {}}
    [shouted, failed] = await tried(rest, message=message("13"), messageTransforms=given(SHOUTED, ODD))
    assert shouted.keys() == {"transformedMessage"}
    assert failed["failedMessage"]["errorMessage"].startswith("Error: unlucky (line 1, column ")


async def test_the_transforms_of_a_topic_or_subscription_are_tried_also_on_what_is_retained(rest: Rest) -> None:
    attribution = udf("return {data: JSON.stringify(metadata)};", "told")
    await rest.create_topic(messageTransforms=[SHOUTED])
    await rest.create_subscription(messageTransforms=[attribution])
    assert await tried(rest, topic=rest.topic(), message=message("a")) == [{"transformedMessage": message("A")}]
    [id_] = await rest.publish("a")
    [step] = await tried(rest, subscription=rest.subscription(), messageId=id_)
    metadata = json.loads(base64.b64decode(step["transformedMessage"]["data"]))
    assert metadata["message_id"] == step["transformedMessage"]["messageId"] == id_
    [step] = await tried(rest, topic=rest.topic(), messageId=id_, messageTransforms=given(MARKED))
    assert step["transformedMessage"]["attributes"] == {"seen": "yes"}
    await rest.create_topic("other")
    missing = f"There is no such message, or it is retained no more (messageId={id_})."
    assert await refused(rest, topic=rest.topic("other"), messageId=id_) == ("NOT_FOUND", missing)


async def test_a_trial_that_says_too_little_or_too_much_is_refused(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    code = "INVALID_ARGUMENT"
    body = message("a")
    for trial, expected in (
        ({"message": body}, "One of messageTransforms, topic and subscription says"),
        ({"messageTransforms": given(MARKED)}, "One of message and messageId says"),
        ({"messageTransforms": given(MARKED), "messageId": "1"}, "With messageId, topic or subscription says"),
        ({"topic": rest.topic(), "subscription": rest.subscription(), "message": body}, "are both given"),
        ({"topic": "t", "message": body}, "topics"),
        ({"message": body, "messageTransforms": given(udf("return (;"))}, "SyntaxError"),
    ):
        status, said = await refused(rest, **trial)
        assert (status, expected in said) == (code, True), said
    assert (await refused(rest, topic=rest.topic("missing"), message=body))[0] == "NOT_FOUND"
    assert (await refused(rest, subscription=rest.subscription("missing"), message=body))[0] == "NOT_FOUND"


async def test_a_journal_tells_what_was_dropped_and_what_failed_and_why(rest: Rest) -> None:
    await rest.create_topic()
    retry = {"minimumBackoff": "600s", "maximumBackoff": "600s"}
    journal = {"journal": {"mode": "ALL"}}
    await rest.create_subscription(messageTransforms=[ODD], extensions=journal, retryPolicy=retry)
    dropped, failed, kept = await rest.publish("2", "13", "3")
    assert texts(await rest.pull()) == ["3"]

    async def story(id_: str) -> list[tuple[str, str, str]]:
        found = await rest.ok("GET", f"{rest.subscription()}/messages/{id_}")
        return [(each["event"], each.get("client", ""), each.get("answer", "")) for each in found["timeline"]]

    assert (await story(dropped))[1:] == [("ACKED", "transform", "a transform dropped it")]
    [(event, client, answer)] = (await story(failed))[1:]
    assert (event, client) == ("NACKED", "transform")
    assert answer.startswith("Error: unlucky (line 1")
    assert [event for event, _, _ in await story(kept)] == ["HANDED_OUT"]


async def test_where_a_subscription_stands_counts_nothing_of_what_its_topic_drops(rest: Rest) -> None:
    await rest.create_topic(messageTransforms=[ODD])
    await rest.create_subscription()
    await rest.publish("1", "2")
    assert texts(await rest.drain()) == ["1"]
    await rest.publish("2", "4")

    assert (await rest.ok("GET", f"{rest.subscription()}/snapshot"))["undeliveredMessages"] == 0
    [lag] = (await rest.ok("GET", f"{rest.project}/lag?fresh=true"))["subscriptions"]
    assert lag["undeliveredMessages"] == 0
