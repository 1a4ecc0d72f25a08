"""Transforms of fields without JavaScript, an extension, beside Google's (A11)."""

import json
from typing import Any

import pytest
from google.pubsub_v1 import SubscriberClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from google.pubsub_v1.types import MessageTransform

from tests.conformance.test_transforms import MARKED, both, texts, udf
from tests.features.transforms.test_transform_trials import given, refused, tried
from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.grpc import channel_to

CARD = '{"id": 7, "card": {"number": "4111", "cvc": "1"}, "note": "x"}'


def fields(**said: Any) -> Json:
    return {"fields": said}


LEAN = fields(
    keep=["body.id", "body.card"],
    mask=["body.card.number"],
    rename={"body.id": "order"},
    set={"attributes.about": "order {body.id}", "body.shop": "{attributes.shop|none}"},
)


async def test_fields_are_changed_for_a_topic_and_for_a_subscription(rest: Rest) -> None:
    await both(rest, topic=[LEAN], subscription=[fields(remove=["body.card", "attributes.shop"]), MARKED])
    await rest.create_subscription("plain")
    await rest.publish(message(CARD, {"shop": "eu"}))
    [stored] = await rest.pull("plain")
    assert json.loads(text(stored)) == {"order": 7, "card": {"number": "****", "cvc": "1"}, "shop": "eu"}
    assert stored["message"]["attributes"] == {"shop": "eu", "about": "order 7"}
    [received] = await rest.pull()
    assert json.loads(text(received)) == {"order": 7, "shop": "eu"}
    assert received["message"]["attributes"] == {"about": "order 7", "seen": "yes"}


async def test_they_are_given_back_as_they_were_said_and_other_changes_leave_them_alone(rest: Rest) -> None:
    said = [LEAN, {**fields(set={"body.z": 1, "body.a": None, "body.m": "x"}, mask=["body.q"]), "disabled": True}]
    await both(rest, topic=said, subscription=said)
    for path, kind in ((rest.topic(), "topic"), (rest.subscription(), "subscription")):
        assert (await rest.ok("GET", path))["messageTransforms"] == said
        change = {"updateMask": "labels", kind: {"name": path, "labels": {"a": "b"}}}
        assert (await rest.ok("PATCH", path, change))["messageTransforms"] == said
    [listed] = (await rest.ok("GET", f"{rest.project}/topics"))["topics"]
    assert listed["messageTransforms"] == said
    assert [*listed["messageTransforms"][1]["fields"]["set"]] == ["body.z", "body.a", "body.m"], "in their order"


async def test_over_grpc_they_are_not_shown_and_not_lost(rest: Rest, broker_url: str) -> None:
    await both(rest, subscription=[LEAN])
    with channel_to(broker_url) as channel:
        client = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        shown = client.get_subscription(subscription=rest.subscription())
        [transform] = shown.message_transforms
        assert MessageTransform.pb(transform).ListFields() == []
        shown.labels["a"] = "b"
        mask = {"paths": ["labels", "message_transforms"]}
        client.update_subscription(request={"subscription": shown, "update_mask": mask})
    after = await rest.ok("GET", rest.subscription())
    assert (after["messageTransforms"], after["labels"]) == ([LEAN], {"a": "b"})


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (fields(), "messageTransforms[0].fields does nothing"),
        (fields(mask=["card"]), "Invalid value at 'messageTransforms[0].fields.mask[0]': a path is"),
        (fields(mask="body.card"), "'messageTransforms[0].fields.mask': Expected `array`, got `str`."),
        (fields(set={"body.a": [1]}), "Invalid value at 'messageTransforms[0].fields.set[...]': Expected "),
        (fields(hide=["body.a"]), "'messageTransforms[0].fields': Object contains unknown field `hide`."),
        ({"fields": 5}, "Invalid value at 'messageTransforms[0].fields': Expected `object`, got `int`."),
        ({**MARKED, **LEAN}, "messageTransforms[0] has two transforms, javascriptUdf and fields: only one can be"),
        ({"field": {}}, "Unknown name \"field\" at 'messageTransforms[0]'"),
    ],
)  # fmt: skip
async def test_what_makes_no_sense_is_refused_by_every_call_that_takes_it(
    rest: Rest, transform: Json, expected: str
) -> None:
    status, said = await rest.error("PUT", rest.topic(), {"messageTransforms": [transform]})
    assert (status, expected in said) == ("INVALID_ARGUMENT", True), said
    assert expected in (await refused(rest, message=message("{}"), messageTransforms=given(transform)))[1]
    path = f"{rest.project}:validateMessageTransform"
    alone = expected.replace("messageTransforms[0]", "messageTransform[0]")
    assert alone in (await rest.error("POST", path, {"messageTransform": transform}))[1]


async def test_they_are_validated_and_tried(rest: Rest) -> None:
    assert await rest.ok("POST", f"{rest.project}:validateMessageTransform", {"messageTransform": LEAN}) == {}
    wrapped = udf("message.data = message.data + '!'; return message;", "wrapped")
    [lean, longer, failed] = await tried(rest, message=message(CARD), messageTransforms=given(LEAN, wrapped, LEAN))
    assert json.loads(text(lean["transformedMessage"])) == {
        "order": 7, "card": {"number": "****", "cvc": "1"}, "shop": "none",
    }  # fmt: skip
    assert text(longer["transformedMessage"]).endswith("!")
    assert failed["failedMessage"]["errorMessage"].startswith("the data is not JSON (")


async def test_one_that_fails_fails_the_publish_and_is_a_nack_of_a_subscription(rest: Rest) -> None:
    await both(rest, topic=[fields(set={"attributes.id": "{body.id}"})])
    body = {"messages": [message('{"id": 1}'), message('{"no": 1}')]}
    status, said = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert status == "INVALID_ARGUMENT"
    assert said == "A transform of the topic failed for messages[1]: there is no body.id in the message."
    await rest.create_topic("open")
    retry = {"minimumBackoff": "0s", "maximumBackoff": "1s"}
    journal = {"journal": {"mode": "ALL"}}
    await rest.create_subscription(
        "failing", "open", messageTransforms=[fields(mask=["body.a"])], retryPolicy=retry, extensions=journal
    )
    [bad, _] = await rest.publish("no JSON", '{"a": 1}', topic="open")
    assert texts(await rest.pull("failing")) == ['{"a":"****"}']

    async def reasons() -> list[str]:
        found = await rest.ok("GET", f"{rest.subscription('failing')}/messages/{bad}")
        return [each["answer"] for each in found["timeline"] if each["event"] == "NACKED"]

    [reason, *_] = await eventually(reasons)
    assert reason.startswith("the data is not JSON (")
