"""How long a caller that says how long it waits is let wait (A7)."""

import pytest

from tests.fixtures.broker import Rest

LESS_THAN_A_BROKER_WAITS = 15  # seconds


@pytest.mark.parametrize("seconds", ["0.2", "0", "0.000000001", "00000.2"])
async def test_a_pull_of_nothing_answers_before_the_deadline_that_its_header_gives(
    rest: Rest, seconds: str
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    options = {"headers": {"X-Server-Timeout": seconds}, "timeout": LESS_THAN_A_BROKER_WAITS}
    assert await rest.ok("POST", f"{rest.subscription()}:pull", {"maxMessages": 1}, **options) == {}


@pytest.mark.parametrize("seconds", ["", "soon", "-1", "1e3", "nan", "inf", "99999999999", "60"])
async def test_a_header_that_is_no_number_changes_nothing_nor_does_a_long_time(rest: Rest, seconds: str) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("here")
    options = {"headers": {"X-Server-Timeout": seconds}}
    assert "receivedMessages" in await rest.ok("POST", f"{rest.subscription()}:pull", {"maxMessages": 1}, **options)
