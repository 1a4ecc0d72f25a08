"""What the log says of dead letters: a line a minute with their number, and that their topic is missing."""

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from tests.fixtures.broker import Rest, eventually
from tests.fixtures.in_process import running_in_process


def _said(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == logger]


async def test_dead_letters_are_counted_and_a_missing_topic_is_told(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker")
    config = AppConfig(database_url=database_url, min_delivery_attempts=1, dead_letter_interval_seconds=0.05)
    broker = Broker(config)
    async with running_in_process(broker) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic()
        await rest.create_topic("dead")
        await rest.create_subscription("dead-sub", "dead")
        policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
        await rest.create_subscription(deadLetterPolicy=policy)
        await rest.publish("a", "b", "c")
        await rest.modify_ack_deadline(await rest.pull(), 0)
        await eventually(lambda: _has(rest, 3))
        await rest.ok("DELETE", rest.topic("dead"))
        for _ in range(2):
            await rest.pull()
        await rest.create_topic("dead")
        await eventually(lambda: _ended(rest, caplog))
    missing, again, unread = _said(caplog, "broker.state")
    assert missing == (
        "dead letters of projects/p/subscriptions/sub go nowhere: there is no topic projects/p/topics/dead; "
        "what fails is delivered again and again"
    )
    sub = "of projects/p/subscriptions/sub to projects/p/topics/dead"
    assert again.startswith(
        "dead letters of projects/p/subscriptions/sub go to projects/p/topics/dead again, after "
    )
    assert unread.startswith("nobody reads dead letters of projects/p/subscriptions/sub: its dead-letter topic ")
    [count] = _said(caplog, "broker.tally")  # at the latest when the broker stops
    assert count.startswith(f"3 dead letters {sub} in ")
    assert count.endswith(" s: nack 3")


async def _has(rest: Rest, count: int) -> bool:
    position = await rest.ok("GET", f"{rest.subscription('dead-sub')}/snapshot")
    return bool(int(position["undeliveredMessages"]) == count)


async def _ended(rest: Rest, caplog: pytest.LogCaptureFixture) -> bool:
    await rest.pull()
    return len(_said(caplog, "broker.state")) == 3
