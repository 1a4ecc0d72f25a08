"""What timeSeries answers, of a running broker."""

import re
from datetime import timedelta

import pytest

from broker.app.broker import Broker
from broker.model.timestamps import format_timestamp
from tests.fixtures.broker import Json, Rest

pytestmark = pytest.mark.own_broker(allow_reset=True)

PUBLISHED = "pubsub_topic_published_messages_total"


async def record(broker: Broker) -> None:
    """Write down what was counted, as when the broker stops."""
    close = broker.features["history"].close
    assert close is not None
    await close()


async def read(rest: Rest, metric: str, **parameters: str) -> Json:
    return await rest.ok("GET", f"{rest.project}/timeSeries", params={"metric": metric, **parameters})


def total(answer: Json) -> int:
    return sum(int(point["value"]["int64Value"]) for one in answer.get("timeSeries", ()) for point in one["points"])


async def test_what_was_published_and_delivered_is_read_in_the_shape_of_cloud_monitoring(
    rest: Rest, broker: Broker
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("a", "b", "c")
    assert await read(rest, PUBLISHED, resource=rest.topic()) | {"interval": {}} == {
        "unit": "1",
        "alignmentPeriod": "10s",
        "interval": {},
    }
    await rest.acknowledge(await rest.pull())
    await record(broker)
    answer = await read(rest, PUBLISHED, resource=rest.topic(), interval="3600s")
    [series] = answer["timeSeries"]
    [point] = series.pop("points")
    assert series == {
        "metric": {"type": PUBLISHED, "labels": {}},
        "resource": {"type": "pubsub_topic", "labels": {"project_id": "p", "topic_id": "topic"}},
        "metricKind": "DELTA",
        "valueType": "INT64",
        "unit": "1",
    }
    assert point["value"] == {"int64Value": "3"}
    assert re.fullmatch(r"....-..-..T..:..:.0.000Z", point["interval"]["startTime"])
    assert answer["interval"]["startTime"] <= point["interval"]["startTime"] < point["interval"]["endTime"]
    assert point["interval"]["endTime"] <= answer["interval"]["endTime"]

    acked = await read(rest, "pubsub_subscription_ack_messages_total", resource=rest.subscription())
    assert total(acked) == 3
    of_project = await read(rest, "pubsub_topic_published_bytes_total", alignmentPeriod="600s")
    assert of_project["timeSeries"][0]["resource"] == {"type": "global", "labels": {"project_id": "p"}}
    assert (of_project["unit"], of_project["alignmentPeriod"], total(of_project)) == ("By", "600s", 3)
    codes = await read(rest, "pubsub_topic_publish_requests_total", resource=rest.topic())
    assert [one["metric"]["labels"] for one in codes["timeSeries"]] == [{"code": "OK"}]
    names = [PUBLISHED, "pubsub_subscription_ack_messages_total", "pubsub_topic_publish_requests_total"]
    several = await read(rest, ",".join([*names, PUBLISHED]))
    assert [one["metric"]["type"] for one in several["timeSeries"]] == names
    assert (several["unit"], [total({"timeSeries": [one]}) for one in several["timeSeries"]]) == ("1", [3, 3, 1])
    assert "unit" not in await read(rest, f"{PUBLISHED},pubsub_topic_published_bytes_total")
    many = {"metric": ",".join([PUBLISHED] * 11)}
    code, text = await rest.error("GET", f"{rest.project}/timeSeries", params=many)
    assert (code, "a call takes at most 10" in text) == ("INVALID_ARGUMENT", True)
    before = format_timestamp(broker.core.clock.now() - timedelta(hours=30))
    until = format_timestamp(broker.core.clock.now() - timedelta(hours=2))
    assert total(await read(rest, PUBLISHED, interval=f"{before}/")) == 3
    assert total(await read(rest, PUBLISHED, interval=f"{before}/{until}")) == 0


async def test_history_outlives_its_topic_and_ends_with_a_reset_of_its_project(rest: Rest, broker: Broker) -> None:
    await rest.create_topic()
    await rest.publish("a")
    await record(broker)
    await rest.ok("DELETE", rest.topic())
    assert total(await read(rest, PUBLISHED, resource=rest.topic())) == 1
    await rest.create_topic()
    await rest.ok("POST", f"{rest.project}:reset")
    assert total(await read(rest, PUBLISHED)) == 0
    await rest.error("GET", f"{rest.project}/timeSeries", params={"metric": PUBLISHED, "resource": rest.topic()})


async def test_each_topic_of_a_project_has_series_of_its_own(rest: Rest, broker: Broker) -> None:
    for name in ("first", "second", "idle"):
        await rest.create_topic(name)
    await rest.publish("1", topic="first")
    await rest.publish("2", topic="second")
    await rest.error("POST", f"{rest.topic('second')}:publish", {"messages": [{"data": "%"}]})
    await record(broker)
    requests, each = "pubsub_topic_publish_requests_total", f"{rest.project}/topics/-"
    found = await read(rest, requests, resource=each)
    assert [
        (one["resource"]["labels"]["topic_id"], one["metric"]["labels"]["code"]) for one in found["timeSeries"]
    ] == [("first", "OK"), ("second", "INVALID_ARGUMENT"), ("second", "OK")]
    refused = await read(rest, requests, resource=each, label="INVALID_ARGUMENT")
    assert [one["resource"]["labels"]["topic_id"] for one in refused["timeSeries"]] == ["second"]
    assert total(refused) == 1
    code, text = await rest.error(
        "GET", f"{rest.project}/timeSeries", params={"metric": requests, "resource": f"{rest.project}/x/-"}
    )
    assert (code, "must be projects/" in text) == ("INVALID_ARGUMENT", True)
    code, text = await rest.error("GET", f"{rest.project}/timeSeries", params={"metric": requests, "label": "OK"})
    assert (code, "label=OK" in text) == ("INVALID_ARGUMENT", True)
