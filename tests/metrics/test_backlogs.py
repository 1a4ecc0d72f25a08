"""What waits, as a scrape tells it (F1)."""

from datetime import timedelta

import httpx

from broker.app import Broker
from tests.fixtures.access import StoppedClock
from tests.fixtures.broker import Rest
from tests.fixtures.metrics import scrape


async def test_a_scrape_tells_what_waits_how_old_it_is_and_what_is_out(
    broker: tuple[Broker, httpx.AsyncClient], project: str
) -> None:
    rest = Rest(broker[1], project)
    clock = broker[0]._clock
    assert isinstance(clock, StoppedClock)
    await rest.create_topic()
    await rest.create_subscription()
    await rest.create_subscription("webhook", pushConfig={"pushEndpoint": "http://127.0.0.1:9/"})
    await rest.publish(*["x" * 100] * 10)
    await rest.acknowledge(await rest.pull(max_messages=4))
    assert len(await rest.pull(max_messages=3)) == 3
    clock.ahead += timedelta(seconds=60)
    scraped = await scrape(broker[1])
    sub = {"project": project.removeprefix("projects/"), "subscription": "sub"}
    assert scraped.get("broker_figures_read") == 1
    assert scraped.get("pubsub_subscription_num_undelivered_messages", **sub) == 6
    assert scraped.get("pubsub_subscription_num_undelivered_messages_estimated", **sub) == 0
    assert scraped.get("pubsub_subscription_num_outstanding_messages", **sub) == 3
    assert scraped.get("pubsub_subscription_backlog_bytes", **sub) == 600
    assert 60 <= scraped.get("pubsub_subscription_oldest_unacked_message_age_seconds", **sub) < 90
    assert scraped.get("pubsub_topic_retained_bytes", topic="topic") == 1000
    breakers = 'pubsub_subscription_push_breaker_state{project="%s",subscription="%s"}'
    assert breakers % (sub["project"], "webhook") in scraped.text
    assert breakers % (sub["project"], "sub") not in scraped.text


async def test_a_scrape_tells_what_stands_still_by_somebody_s_will_and_what_is_under_way(
    broker: tuple[Broker, httpx.AsyncClient], project: str
) -> None:
    rest = Rest(broker[1], project)
    clock = broker[0]._clock
    assert isinstance(clock, StoppedClock)
    for name in ("topic", "other", "iced"):
        await rest.create_topic(name, messageRetentionDuration="600s")
    for name in ("sub", "paused"):
        await rest.create_subscription(name)
    await rest.ok("POST", f"{rest.subscription('paused')}:pause", {})
    await rest.ok("POST", f"{rest.topic('iced')}:freeze", {})
    await rest.publish(*("m" for _ in range(20)))
    slow = {"targetTopic": rest.topic("other"), "maxMessagesPerSecond": 0.01}
    names = [(await rest.ok("POST", f"{rest.topic()}:copy", slow))["name"] for _ in range(3)]
    await rest.ok("POST", f"{names[0]}:cancel", {})
    await rest.ok("POST", f"{rest.subscription('paused')}:purge", {})
    await rest.ok("POST", f"{rest.topic('iced')}:purge")
    clock.ahead += timedelta(seconds=60)
    scraped = await scrape(broker[1])
    labels = {"project": project.removeprefix("projects/")}
    paused = {
        name: scraped.get("pubsub_subscription_paused", **labels, subscription=name) for name in ("sub", "paused")
    }
    assert paused == {"sub": 0, "paused": 1}
    assert scraped.get("pubsub_topic_frozen", **labels, topic="iced") == 1
    assert scraped.text.count("pubsub_topic_frozen{") == 1
    assert [scraped.get("broker_purges_total", of=each) for each in ("subscription", "topic")] == [1, 1]
    assert scraped.get("broker_operations_running", **labels) == 2
    assert 60 <= scraped.get("broker_operation_step_age_seconds", **labels) < 90
