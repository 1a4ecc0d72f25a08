"""Each counter is the known number after a known load (F1)."""

import asyncio
import socket
from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest

from broker.app.broker import Broker
from tests.fixtures.access import StoppedClock
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, message
from tests.fixtures.grpc import GrpcRest, channel_to
from tests.fixtures.metrics import Scraped, scrape, scrape_url
from tests.fixtures.push_sink import PushSink
from tests.observability.conftest import in_process

Running = tuple[Broker, httpx.AsyncClient]


async def _work(api: Rest) -> None:
    """Three requests with 16 messages of 176 bytes, of which 12 are acked and 4 come twice."""
    await api.publish(*["x" * 10] * 10)
    await api.publish("x" * 6)
    await api.publish(*["x" * 14] * 5)
    received = await api.pull(max_messages=100)
    assert len(received) == 16
    await api.acknowledge(received[:12])
    names = [one["ackId"] for one in received[12:]]
    await api.ok("POST", f"{api.subscription()}:modifyAckDeadline", {"ackIds": names, "ackDeadlineSeconds": 0})
    again = await api.pull(max_messages=100, wait=True)
    assert len(again) == 4
    await api.acknowledge(received[:12])  # which are acked already


def _check(scraped: Scraped, project: str) -> None:
    project = project.removeprefix("projects/")
    topic = {"project": project, "topic": "topic"}
    sub = {"project": project, "subscription": "sub"}
    assert scraped.of("topic", **topic) == {
        "publish_requests": 3,
        "published_messages": 16,
        "published_bytes": 176,
    }
    assert scraped.get("pubsub_topic_publish_requests_total", code="OK", **topic) == 3
    assert scraped.get("pubsub_topic_message_size_bytes_count", **topic) == 16
    assert scraped.get("pubsub_topic_message_size_bytes_sum", **topic) == 176
    assert scraped.of("subscription", **sub) == {"sent_messages": 20, "ack_messages": 12, "nack_messages": 4}
    assert scraped.get("pubsub_subscription_ack_latency_seconds_count", **sub) == 12
    assert scraped.get("pubsub_delivery_lag_seconds_count", **sub) >= 1


@pytest.mark.parametrize("api", ["rest", "grpc"])
async def test_publishes_pulls_acks_and_nacks_are_counted_over_both_apis(
    broker: Running, project: str, api: str
) -> None:
    rest = Rest(broker[1], project)
    await rest.create_topic()
    await rest.create_subscription()
    if api == "rest":
        await _work(rest)
    else:
        with channel_to(str(broker[1].base_url)) as channel:
            await _work(GrpcRest(channel, project))
    scraped = await scrape(broker[1])
    _check(scraped, project)
    assert scraped.get("pubsub_sequencing_seconds_count") == 3
    assert scraped.get("broker_publish_commit_messages_sum") == 16
    assert scraped.get("broker_database_round_trip_seconds_count") > 3


async def test_refused_publishes_are_counted_by_their_code(broker: Running, project: str) -> None:
    rest = Rest(broker[1], project)
    await rest.create_topic()
    await rest.publish("x")
    assert (await rest.error("POST", f"{rest.topic()}:publish", {"messages": []}))[0] == "INVALID_ARGUMENT"
    assert (await rest.error("POST", f"{rest.topic()}:publish", {"nonsense": 1}))[0] == "INVALID_ARGUMENT"
    assert (await rest.error("POST", f"{rest.topic('none')}:publish", {"messages": [message("x")]}))[
        0
    ] == "NOT_FOUND"
    scraped = await scrape(broker[1])
    name, own = "pubsub_topic_publish_requests_total", {"topic": "topic"}
    assert [scraped.get(name, code=code, **own) for code in ("OK", "INVALID_ARGUMENT", "NOT_FOUND")] == [1, 2, 0]
    assert scraped.get(name, code="NOT_FOUND", topic="other", project="other") == 1


async def test_expired_deadlines_and_dead_letters_are_counted(broker: Running, project: str) -> None:
    rest = Rest(broker[1], project)
    clock = broker[0].core.clock
    assert isinstance(clock, StoppedClock)
    await rest.create_topic()
    await rest.create_topic("dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 5}
    await rest.create_subscription(deadLetterPolicy=policy)
    await rest.publish("a", "b", "c")
    for _ in range(5):
        assert len(await rest.pull(max_messages=10)) == 3
        clock.ahead += timedelta(seconds=11)
    await rest.pull(max_messages=10)
    await broker[0].workers["dead-letter forwarder"].run_once()
    sub = {"project": project.removeprefix("projects/"), "subscription": "sub"}

    async def all_gone() -> bool:
        return (await scrape(broker[1])).of("subscription", **sub).get("dead_letter_messages") == 3

    await eventually(all_gone)
    assert (await scrape(broker[1])).of("subscription", **sub) == {
        "sent_messages": 15,
        "expired_ack_deadlines": 15,
        "dead_letter_messages": 3,
    }


async def test_pushes_are_counted_by_how_they_ended(broker: Running, project: str, push_sink: PushSink) -> None:
    rest = Rest(broker[1], project)
    await push_sink.program("/metrics", "/status/503", "/status/404", "/status/200")
    await rest.create_topic()
    config = {"pushEndpoint": f"{push_sink.url}/metrics"}
    retry = {"minimumBackoff": "0s", "maximumBackoff": "0s"}
    await rest.create_subscription(pushConfig=config, retryPolicy=retry)
    await rest.publish("x")
    sub = {"project": project.removeprefix("projects/"), "subscription": "sub"}

    async def acked() -> bool:
        return (await scrape(broker[1])).of("subscription", **sub).get("ack_messages") == 1

    await eventually(acked)
    scraped = await scrape(broker[1])
    assert scraped.of("subscription", **sub) == {
        "sent_messages": 3,
        "push_requests": 3,
        "nack_messages": 2,
        "ack_messages": 1,
    }
    classes = ("remote_server_5xx", "remote_server_4xx", "ack")
    name = "pubsub_subscription_push_requests_total"
    assert [scraped.get(name, response_class=each, **sub) for each in classes] == [1, 1, 1]
    assert scraped.get("pubsub_subscription_push_latency_seconds_count", **sub) == 3


@pytest.mark.slow
async def test_a_scrape_speaks_for_all_workers_and_no_counter_goes_back_when_one_is_killed(
    start_broker: Callable[..., BrokerProcess], database_url: str, project: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["--port", "0", "--workers", "2", "--metrics-port", str(port)]
    broker = start_broker("--database-url", database_url, *arguments)
    alone = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(
        base_url=broker.url, limits=httpx.Limits(max_keepalive_connections=0), verify=NO_TLS
    ) as client:
        rest = Rest(client, project)
        await rest.create_topic()
        for killed in (False, True):
            if killed:
                for worker in broker.workers():
                    worker.kill()
                broker.wait_until_serving()
            for _ in range(20):  # each on a connection of its own, so that both workers get some
                await rest.publish("x")
            want = 40 if killed else 20
            seen = {scrape_url(broker.url).of("topic", topic="topic")["published_messages"] for _ in range(8)}
            assert seen == {want}
            assert scrape_url(alone).of("topic", topic="topic")["published_messages"] == want
        assert (await client.get(f"{alone}/v1/{project}/topics")).status_code == 404


async def test_the_counters_of_two_brokers_add_up(clone: Callable[..., object], project: str) -> None:
    with clone() as url:
        async with in_process(url) as (_, first), in_process(url) as (_, second):
            rest, other = Rest(first, project), Rest(second, project)
            await rest.create_topic()
            await rest.create_subscription()
            await rest.publish("a", "b")
            await other.publish("c")
            received = await other.pull(wait=True)
            await rest.acknowledge(received)
            pages = [await scrape(first), await scrape(second)]
            published = [page.of("topic", topic="topic")["published_messages"] for page in pages]
            assert published == [2, 1]
            assert sum(page.get("pubsub_subscription_sent_messages_total") for page in pages) == len(received)
            assert sum(page.get("pubsub_subscription_ack_messages_total") for page in pages) == len(received)


async def test_turns_are_counted_by_project_and_kind(broker: Running, project: str) -> None:
    """Who waits for whom: one project looks, and another has the only turn for that."""
    rest, other = Rest(broker[1], project), Rest(broker[1], "projects/other-one")
    await rest.create_topic()
    await rest.create_subscription()
    for text in "abc":
        await rest.publish(text)
    received = await rest.pull()
    await rest.acknowledge(received[:1])
    await rest.acknowledge(received[1:])
    turns = broker[0].parts.query_turns
    async with turns.of(other.project):
        waiting = asyncio.create_task(rest.ok("GET", f"{project}/lag?fresh=true"))
        await eventually(lambda: len(turns._turns))
        await asyncio.sleep(0.02)
    await waiting
    scraped = await scrape(broker[1])

    def of(name: str, kind: str, of_project: str = project) -> float:
        return scraped.get(f"pubsub_{name}_total", kind=kind, project=of_project.removeprefix("projects/"))

    assert [of("turns", kind) for kind in ("resource", "publish", "ack", "look")] == [3, 3, 2, 1]
    assert of("turns", "claim") >= 1
    assert 0.02 <= of("turn_wait_seconds", "look") < 600  # seconds, not microseconds
    assert of("turn_held_seconds", "look", other.project) >= 0.02
    assert all(of("turn_held_seconds", kind) > 0 for kind in ("resource", "publish", "ack", "look", "claim"))
    assert scraped.get("broker_fan_out_depth_messages_sum") == 3
    widths = (scraped.get(f"broker_fan_out_width_subscriptions_{part}") for part in ("sum", "count"))
    assert len(set(widths)) == 1  # one subscription in each


async def test_a_push_has_a_turn_until_it_is_answered(broker: Running, project: str, push_sink: PushSink) -> None:
    rest = Rest(broker[1], project)
    await rest.create_topic()
    for name in ("one", "two"):
        await rest.create_subscription(name, pushConfig={"pushEndpoint": push_sink.url + f"/status/204/{name}"})
    await rest.publish("m")
    for name in ("one", "two"):
        await push_sink.wait_for(f"/status/204/{name}", 1)
    wanted = {"kind": "push", "project": project.removeprefix("projects/")}

    async def counted() -> bool:
        return (await scrape(broker[1])).get("pubsub_turns_total", **wanted) == 2

    await eventually(counted)
    assert (await scrape(broker[1])).get("pubsub_turn_held_seconds_total", **wanted) > 0
