"""What waits, as a scrape tells it (F1)."""

from dataclasses import replace
from datetime import timedelta

import httpx

from broker.app.broker import Broker
from broker.core.catalog.push_state_rows import write_push_states
from broker.core.catalog.subscription_rows import find_subscriptions
from broker.model.push_state import FailingMessage, FailureRun, PushState
from tests.fixtures.access import StoppedClock
from tests.fixtures.broker import Rest
from tests.fixtures.metrics import scrape


async def test_a_scrape_tells_what_waits_how_old_it_is_and_what_is_out(
    broker: tuple[Broker, httpx.AsyncClient], project: str
) -> None:
    rest = Rest(broker[1], project)
    clock = broker[0].core.clock
    assert isinstance(clock, StoppedClock)
    await rest.create_topic()
    await rest.create_subscription(ackDeadlineSeconds=600)
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
    for of_endpoints in ("push_breaker_state", "push_failing", "push_failing_messages"):
        series = f'pubsub_subscription_{of_endpoints}{{project="%s",subscription="%s"}}'
        assert series % (sub["project"], "webhook") in scraped.text
        assert series % (sub["project"], "sub") not in scraped.text


async def test_a_scrape_tells_which_endpoints_and_messages_are_reported_as_failing(
    broker: tuple[Broker, httpx.AsyncClient], project: str
) -> None:
    rest, database = Rest(broker[1], project), broker[0].core.database
    now = broker[0].core.clock.now()
    await rest.create_topic()
    run = FailureRun(since=now, requests=1, status=503, reason="Service Unavailable")
    message = FailingMessage(message_id="1", since=now, failures=3, status=400, reason="Bad Request")
    for name, fields in (
        ("young", {"failures": run}),
        ("failing", {"failures": replace(run, is_reported=True)}),
        ("refusing", {"failing_messages": (message,) * 3}),
    ):
        await rest.create_subscription(name, pushConfig={"pushEndpoint": "http://127.0.0.1:9/"})
        async with database.transaction() as connection:
            [found] = await find_subscriptions(connection, names=[rest.subscription(name)])
            state = PushState(subscription_id=found.subscription_id, changed_at=now, **fields)  # type: ignore[arg-type]
            await write_push_states(connection, states=[state])
    scraped = await scrape(broker[1])
    series = {
        (metric, name): scraped.get(
            f"pubsub_subscription_push_{metric}", project=project.removeprefix("projects/"), subscription=name
        )
        for metric in ("failing", "failing_messages")
        for name in ("young", "failing", "refusing")
    }
    assert {key: value for key, value in series.items() if value} == {
        ("failing", "failing"): 1,
        ("failing_messages", "refusing"): 3,
    }


async def test_a_scrape_tells_what_stands_still_by_somebody_s_will_and_what_is_under_way(
    broker: tuple[Broker, httpx.AsyncClient], project: str
) -> None:
    rest = Rest(broker[1], project)
    clock = broker[0].core.clock
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
