"""Message transforms by Google's Python client, pushed, and beside somebody who means no good (A11, M1)."""

import uuid

import pytest
from google.api_core import exceptions
from google.cloud import pubsub_v1
from google.pubsub_v1.types import JavaScriptUDF, MessageTransform

from tests.fixtures.broker import Rest, message, text
from tests.fixtures.google import SECONDS, Google, Handler
from tests.fixtures.push_sink import PushSink

pytestmark = [pytest.mark.slow, pytest.mark.ci]

GOOD = """
function mask(message, metadata) {
  const order = JSON.parse(message.data);
  if (order.test) return null;
  delete order.card;
  return {data: JSON.stringify(order), attributes: {masked: "yes"}};
}
"""


def _udf(code: str, name: str) -> MessageTransform:
    return MessageTransform(javascript_udf=JavaScriptUDF(function_name=name, code=code))


def test_what_a_client_streams_has_gone_through_the_subscriptions_transforms(google: Google) -> None:
    google.create(message_transforms=[_udf(GOOD, "mask")])
    google.publish('{"n": 1, "card": "4111"}', '{"test": true}', '{"n": 2}')
    handler = Handler()
    with google.subscribed(handler):
        received = handler.wait_for(2)
    assert sorted(handler.texts) == ['{"n":1}', '{"n":2}']
    assert all(dict(each.attributes) == {"masked": "yes"} for each in received)
    assert google.pull_at_once() == []


def test_a_client_hears_why_its_publish_failed(google: Google) -> None:
    publisher: pubsub_v1.PublisherClient = google.publisher
    publisher.create_topic(request={"name": google.topic, "message_transforms": [_udf(GOOD, "mask")]})
    assert publisher.get_topic(topic=google.topic).message_transforms == [_udf(GOOD, "mask")]
    with pytest.raises(exceptions.InvalidArgument, match=r"failed for messages\[0\]: SyntaxError"):
        publisher.publish(google.topic, b"no JSON").result(SECONDS)


async def test_pushes_carry_what_the_transforms_make(rest: Rest, push_sink: PushSink) -> None:
    path = f"/status/200/{uuid.uuid4().hex}"
    odd = "function odd(m) { const n = Number(m.data); if (n === 13) throw 13; return n % 2 ? m : null; }"
    transforms = [{"javascriptUdf": {"functionName": "odd", "code": odd}}]
    await rest.create_topic()
    push = {"pushConfig": {"pushEndpoint": push_sink.url + path}, "messageTransforms": transforms}
    await rest.create_subscription(**push)
    await rest.create_subscription("ordered", enableMessageOrdering=True, messageTransforms=transforms)
    for n in (1, 2, 13, 3, 4, 5):
        await rest.publish({"orderingKey": "k"} | message(str(n)))
    pushed = await push_sink.wait_for(path, 3)
    assert sorted(text(each.json) for each in pushed) == ["1", "3", "5"]
    first = await rest.pull("ordered")
    assert [text(each) for each in first] == ["1"]


async def test_a_good_function_is_served_beside_one_that_loops(rest: Rest) -> None:
    loop = {"javascriptUdf": {"functionName": "f", "code": "function f(m) { for (;;); }"}}
    good = {"javascriptUdf": {"functionName": "f", "code": "function f(m) { m.data += '!'; return m; }"}}
    hostile = Rest(rest.client, f"{rest.project}-hostile")
    await hostile.create_topic()
    await hostile.create_subscription(messageTransforms=[loop])
    await hostile.publish(*map(str, range(50)))
    await rest.create_topic()
    await rest.create_subscription(messageTransforms=[good])
    assert await hostile.pull() == []  # its messages are nacked, and come again
    for n in range(5):
        await rest.publish(str(n))
        [received] = await rest.pull(wait=True)
        assert text(received) == f"{n}!"
        await rest.acknowledge([received])
