# ruff: noqa: F811  (a fixture of another file is named as an argument)
"""What is urgent is claimed for first: the rules of the scheduler (docs/decisions/0052), and what is without."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from broker.core.claiming.claim_scheduler import ClaimScheduler, ScheduledConsumer, ShardSubscription, State
from broker.core.claiming.consumer import Answer
from broker.core.claiming.transaction.request import Claimed, ClaimRequest, ClaimTarget, More, Quiet
from broker.core.process.tasks import Tasks
from broker.features.priorities.claim_levels import AllLevels, Levels
from broker.model.delivery import Delivery
from broker.model.priorities import MAX_LEVELS, MIN_AGE, Priorities
from broker.model.subscription import Subscription
from tests.core.claiming.test_claim_scheduler import Claims, Eater, StandingClock
from tests.core.claiming.test_claim_scheduler import played as without_orders  # noqa: F401  (a fixture)
from tests.fixtures.broker import eventually
from tests.fixtures.claims import pull_claims
from tests.fixtures.log import Log

PLAIN, URGENT, NEXT = 1, 2, 3  # shards
AGE = timedelta(seconds=60)
STRICT, AGED = Priorities(3), Priorities(3, age=AGE)


@dataclass
class Hasty(Eater):
    """A consumer of a topic with levels: as pulls are, or, as pushes are, of several claims `at_once`."""

    at_once: bool = False
    serving: bool = False
    shard_ids: tuple[int, ...] = (PLAIN, URGENT, NEXT)
    priorities: Priorities = STRICT

    @property
    def subscription(self) -> Subscription:
        return replace(super().subscription, levels={URGENT: 0, NEXT: 1}, priorities=self.priorities)

    def wants(self) -> bool:
        return super().wants() and (self.at_once or not self.serving)

    def begin(self, now: datetime, *, due: bool) -> ClaimTarget | None:
        target = super().begin(now, due=due)
        self.serving |= target is not None
        return target

    def accept(self, answer: Answer) -> None:
        self.serving = False
        super().accept(answer)


@pytest.fixture
def played(without_orders: Claims, log: Log, tasks: Tasks) -> Claims:
    orders = AllLevels(log.database)
    without_orders.scheduler = pull_claims(log.database, StandingClock(), tasks, shard_orders=orders)
    return without_orders


@dataclass
class There:
    """Messages of each shard, and the shards of claims that brought some."""

    counts: dict[int, int]
    brought: list[int] = field(default_factory=list)

    def answer(self, request: ClaimRequest) -> Mapping[int, Claimed]:
        claimed = {}
        for each in request.targets:
            count = min(each.requests[0].max_messages, self.counts.get(request.shard_id, 0))
            messages: list[Any] = [None] * count
            deliveries = [Delivery(request.shard_id, 1, 1, messages)] if count else []
            if count:
                self.counts[request.shard_id] -= count
                self.brought.append(request.shard_id)
            rest = More() if self.counts.get(request.shard_id) else Quiet()
            claimed[each.subscription_id] = Claimed([deliveries], rest)
        return claimed


def begin(played: Claims, counts: dict[int, int]) -> There:
    there = There(counts)
    played.answer = there.answer
    return there


def shards(played: Claims) -> list[int]:
    return [request.shard_id for request in played.requests]


async def a_while() -> None:
    """In which what should not happen would."""
    for _ in range(50):
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)


async def eat(played: Claims, there: There, eater: Hasty, count: int) -> list[int]:
    """One message after the other, each wanted anew; the shards that they came from."""
    had = len(there.brought)
    for number in range(count):
        eater.appetite = 1
        played.scheduler.ready(eater.number)
        await eventually(lambda number=number: len(there.brought) == had + number + 1 and eater.appetite == 0)
    return there.brought[had:]


# --- a shard is left alone while a more urgent one may have something ------------------------------------------


async def test_a_scheduler_without_orders_lets_no_shard_give_way_to_another(without_orders: Claims) -> None:
    await _claim_at_once(without_orders)
    await eventually(lambda: set(shards(without_orders)) == {URGENT, NEXT, PLAIN})
    without_orders.free.set()


async def _claim_at_once(played: Claims) -> None:
    """Begins claims that last until `free`, whatever their shard: none takes what another would have been for."""
    begin(played, {PLAIN: 1, URGENT: 1, NEXT: 1})
    played.stuck = {URGENT, NEXT, PLAIN}
    played.scheduler.add(Hasty(1, appetite=1, at_once=True))
    await eventually(lambda: URGENT in shards(played))


async def test_while_a_claim_of_what_is_urgent_is_under_way_nothing_else_is_claimed(
    played: Claims,
) -> None:
    await _claim_at_once(played)
    await a_while()
    assert shards(played) == [URGENT]
    played.free.set()


@pytest.mark.parametrize(
    "rule_out",
    [
        lambda patch: patch.setattr(ShardSubscription, "gives_way", lambda self, now: False),
        lambda patch: patch.setattr(
            ShardSubscription, "may_have_messages", lambda self, now: self.state is State.QUEUED
        ),
    ],
    ids=["nobody gives way", "a claim under way does not count"],
)
async def test_it_would_be_without_the_rule(
    played: Claims,
    monkeypatch: pytest.MonkeyPatch,
    rule_out: Callable[[pytest.MonkeyPatch], None],
) -> None:
    rule_out(monkeypatch)
    await _claim_at_once(played)
    await eventually(lambda: set(shards(played)) > {URGENT})
    played.free.set()


async def test_what_gave_way_has_its_turn_once_there_is_nothing_more_urgent(played: Claims) -> None:
    there = begin(played, {PLAIN: 2, URGENT: 2, NEXT: 2})
    eater = Hasty(1, appetite=0)
    played.scheduler.add(eater)
    assert await eat(played, there, eater, 6) == [URGENT, URGENT, NEXT, NEXT, PLAIN, PLAIN]


async def _urgent_while_nothing_is_wanted(played: Claims) -> list[int]:
    there = begin(played, {PLAIN: 3})
    eater = Hasty(1, appetite=0)
    played.scheduler.add(eater)
    await eat(played, there, eater, 1)
    there.counts[URGENT] = 1
    played.scheduler.wake(URGENT, None)
    [scheduled] = played.scheduler._scheduled.values()
    await eventually(lambda: {shard.shard_id for shard in scheduled.held_up} >= {PLAIN, URGENT})
    return await eat(played, there, eater, 2)


async def test_what_is_urgent_comes_first_once_something_is_wanted(played: Claims) -> None:
    assert await _urgent_while_nothing_is_wanted(played) == [URGENT, PLAIN]


async def test_it_would_not_if_nobody_gave_way(
    played: Claims,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ShardSubscription, "gives_way", lambda self, now: False)
    monkeypatch.setattr(ScheduledConsumer, "next_held_up", lambda self, now: sorted(self.held_up, key=_plain_first))
    assert (await _urgent_while_nothing_is_wanted(played))[0] == PLAIN


def _plain_first(shard: ShardSubscription) -> int:
    return shard.shard_id


# --- whoever begins sees all that was published before ---------------------------------------------------------


async def _unheard(played: Claims) -> list[int]:
    """Another process publishes what is urgent, and nobody has told of it."""
    there = begin(played, {PLAIN: 3})
    eater = Hasty(1, appetite=0)
    played.scheduler.add(eater)
    await eat(played, there, eater, 1)
    there.counts[URGENT] = 1
    eater.appetite = 1
    played.scheduler.add(eater)  # a pull
    await eventually(lambda: len(there.brought) == 2)
    return there.brought[1:]


async def test_a_pull_sees_what_another_process_published_before(played: Claims) -> None:
    assert await _unheard(played) == [URGENT]


async def test_it_would_not_if_it_looked_only_where_something_is_known_of(
    played: Claims,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check(scheduler: ClaimScheduler, scheduled: ScheduledConsumer) -> None:
        known = [shard for shard in scheduled.shards if shard.state is not State.IDLE or not shard.claimed_at]
        for shard in known:
            scheduler._schedule(shard)
        scheduler._schedule_held_up(scheduled)

    monkeypatch.setattr(ClaimScheduler, "_schedule_all", check)
    assert await _unheard(played) == [PLAIN]


# --- what is old -----------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The shards that were asked since when something waits there: since `AGE` ago in the plain one."""
    shard_ids: list[int] = []

    async def check(_: Any, shard_id: int, waiting: Sequence[tuple[Subscription, Levels]], now: datetime) -> None:
        shard_ids.append(shard_id)
        for subscription, levels in waiting:
            since = now - AGE if shard_id == PLAIN else now
            levels.waits(shard_id, subscription.levels.get(shard_id, MAX_LEVELS), since, AGE, now)

    monkeypatch.setattr(AllLevels, "read_ages", check)
    return shard_ids


async def test_what_is_old_takes_turns_and_what_is_not_is_asked_once(
    played: Claims,
    asked: list[int],
) -> None:
    there = begin(played, {PLAIN: 20, URGENT: 20, NEXT: 20})
    eater = Hasty(1, appetite=0, priorities=AGED)
    played.scheduler.add(eater)
    order = await eat(played, there, eater, 16)
    assert order.count(PLAIN) in (7, 8)
    assert not any(one == other == PLAIN for one, other in pairwise(order))
    assert asked.count(NEXT) == 1


async def test_it_would_be_asked_each_time_if_the_answer_was_not_kept(
    played: Claims,
    asked: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = Levels.waits

    def forget(levels: Levels, shard_id: int, *others: Any) -> None:
        waits(levels, shard_id, *others)
        del levels.waits_since[shard_id]

    monkeypatch.setattr(Levels, "waits", forget)
    there = begin(played, {URGENT: 20, NEXT: 20})
    eater = Hasty(1, appetite=0, priorities=AGED)
    played.scheduler.add(eater)
    await eat(played, there, eater, 8)
    assert asked.count(NEXT) > 1


async def _grows_old(played: Claims, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens meanwhile: a claim of what is urgent is stuck, and what is not becomes old by the clock."""
    first: list[datetime] = []

    async def check(_: Any, shard_id: int, waiting: Sequence[tuple[Subscription, Levels]], now: datetime) -> None:
        first.append(now)
        for subscription, levels in waiting:
            levels.waits(shard_id, subscription.levels.get(shard_id, MAX_LEVELS), first[0], MIN_AGE, now)

    monkeypatch.setattr(AllLevels, "read_ages", check)
    there = begin(played, {PLAIN: 1, URGENT: 2})
    eater = Hasty(1, appetite=0, at_once=True, priorities=Priorities(3, age=MIN_AGE))
    played.scheduler.add(eater)
    await eat(played, there, eater, 1)
    played.stuck = {URGENT}
    eater.appetite = 10
    played.scheduler.ready(1)
    await eventually(lambda: first)


async def test_what_becomes_old_while_nothing_happens_has_its_turn(
    played: Claims,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await _grows_old(played, monkeypatch)
    await eventually(lambda: PLAIN in shards(played))
    played.free.set()


async def test_it_would_not_without_an_alarm(
    played: Claims,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ScheduledConsumer, "next_old_at", lambda self, now: None)
    await _grows_old(played, monkeypatch)
    await asyncio.sleep(3 * MIN_AGE.total_seconds())
    assert PLAIN not in shards(played)
    played.free.set()
