"""A storm of one subscription's dead letters holds up nobody else's (A5, M1)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest

from broker.app.broker import Broker
from broker.fairness import tenants
from broker.features.dead_letters.forwarding import dead_letter_forwarder
from broker.features.dead_letters.forwarding import forwarding as dead_letters
from tests.fixtures.broker import Rest


@dataclass
class _Forwarding:
    """`batches`: of which subscription, from when, until when; `turns`: what they waited for; `after_first` is done
    after the first.
    """

    broker: Broker
    rest: Rest
    batches: list[tuple[str, float, float]] = field(default_factory=list)
    turns: list[Any] = field(default_factory=list)
    after_first: Callable[[], Awaitable[None]] | None = None

    async def forward(self, *arguments: Any, **named: Any) -> Any:
        clock = asyncio.get_running_loop().time
        begun_at = clock()
        self.turns.append(named["turn"])
        done = await dead_letters.forward_dead_letters(*arguments, **named)
        self.batches.append((named["subscription"].name.rpartition("/")[2], begun_at, clock()))
        if self.after_first is not None:
            then, self.after_first = self.after_first, None
            await then()
        return done

    async def give_up(self, name: str, count: int) -> None:
        """So many messages of a subscription of its own."""
        await self.rest.create_topic(f"of-{name}")
        policy = {"deadLetterTopic": self.rest.topic("dead")}
        await self.rest.create_subscription(name, f"of-{name}", deadLetterPolicy=policy)
        await self.rest.publish(*[name] * count, topic=f"of-{name}")
        ack_ids = [each["ackId"] for each in await self.rest.pull(name, count)]
        await self.rest.ok("POST", f"{self.rest.subscription(name)}:reject", {"ackIds": ack_ids})

    async def run_once(self) -> int:
        return await self.broker.workers["dead-letter forwarder"].run_once()

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.batches]


pytestmark = pytest.mark.own_broker(dead_letter_interval_seconds=600)


@pytest.fixture
async def forwarding(broker: Broker, rest: Rest, monkeypatch: pytest.MonkeyPatch) -> _Forwarding:
    """Forwards batches of five dead letters when a test asks for it."""
    monkeypatch.setattr(dead_letters, "MAX_DEAD_LETTERS", 5)
    forwarding = _Forwarding(broker, rest)
    await rest.create_topic("dead")
    monkeypatch.setattr(dead_letter_forwarder, "forward_dead_letters", forwarding.forward)
    return forwarding


async def test_subscriptions_take_turns_by_the_batch(forwarding: _Forwarding) -> None:
    await forwarding.give_up("storm", 23)
    await forwarding.give_up("quiet", 1)
    assert await forwarding.run_once() == 24
    assert forwarding.names.index("quiet") <= 1
    assert forwarding.names.count("storm") >= 5


async def test_who_comes_during_a_storm_does_not_wait_for_its_end(
    forwarding: _Forwarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_forwarder, "_CHECK_SECONDS", 0.0)
    await forwarding.give_up("storm", 23)
    forwarding.after_first = lambda: forwarding.give_up("quiet", 1)
    assert await forwarding.run_once() == 24
    assert forwarding.names.index("quiet") <= 2


async def test_half_of_the_time_is_left_to_others_while_they_are_there(
    forwarding: _Forwarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    await forwarding.give_up("storm", 23)
    monkeypatch.setattr(tenants, "LATELY_SECONDS", inf)
    for project in ("projects/p", "projects/other"):
        forwarding.broker.core.tenants.note_turn(project)
    assert await forwarding.run_once() == 23
    for (_, begun_at, ended_at), (_, next_at, _) in zip(forwarding.batches, forwarding.batches[1:], strict=False):
        assert next_at - ended_at >= ended_at - begun_at
    assert len(forwarding.batches) == 23, "of one letter each, where one alone has five in a batch"


async def test_its_long_steps_are_its_projects(forwarding: _Forwarding) -> None:
    """They stand in one row with those of others."""
    await forwarding.give_up("storm", 1)
    await forwarding.run_once()
    [turn] = forwarding.turns
    assert (turn.func, turn.args) == (forwarding.broker.core.loop_turns.turn, ("projects/p",))


async def test_projects_take_turns_however_many_subscriptions_one_has(
    forwarding: _Forwarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time that batches take: about one in two is the other project's, not one in seven."""
    other = _Forwarding(forwarding.broker, Rest(forwarding.rest.client, "projects/other"))
    await other.rest.create_topic("dead")
    for number in range(6):
        await forwarding.give_up(f"storm-{number}", 10)
    await other.give_up("quiet", 10)
    monkeypatch.setattr(tenants, "LATELY_SECONDS", inf)  # so batches are of one letter
    assert await forwarding.run_once() == 70
    last = max(number for number, name in enumerate(forwarding.names) if name == "quiet")
    assert (len(forwarding.names), last < 45) == (70, True), forwarding.names
