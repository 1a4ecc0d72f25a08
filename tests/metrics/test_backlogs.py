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
