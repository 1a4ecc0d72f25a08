"""Who is claimed for, when, and with whom: what the scheduler promises to pulls and pushes alike."""

import asyncio
import itertools
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.claiming import claim_scheduler
from broker.core.claiming.claim_scheduler import ClaimScheduler
from broker.core.claiming.consumer import Answer
from broker.core.claiming.transaction import claim as claiming
from broker.core.claiming.transaction.request import Claimed, ClaimRequest, ClaimTarget, Locked, More, Quiet, Rest
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.pulling.long_poll import LongPoll
from broker.core.pulling.pull_queue import PullTerms
from broker.model.delivery import Delivery, DeliveryRequest
from broker.model.errors import Aborted, Internal, Unavailable
from broker.model.push_config import PushConfig, PushOptions
from broker.model.subscription import Extensions, Subscription
from tests.fixtures.broker import eventually
from tests.fixtures.claims import pull_claims
from tests.fixtures.log import Log, add_subscription

SHARD = 1
TEN = DeliveryRequest(max_messages=10, max_bytes=1_000_000)


# --- with a real log --------------------------------------------------------------------------------------------


async def texts(long_poll: LongPoll, subscription: Subscription, lease: float = 60) -> list[bytes]:
    terms = PullTerms(timedelta(seconds=lease))
    deliveries = await long_poll.pull(subscription, TEN, wait_seconds=60, terms=terms)
    return [message.data for delivery in deliveries for message in delivery.messages]


async def test_a_pull_that_waits_gets_what_another_that_waited_with_it_did_not_ack(
    log: Log, long_poll: LongPoll
) -> None:
    """The client that got it has died.  Nobody publishes, acks or pulls meanwhile: only the ack deadline passes."""
    first = asyncio.create_task(texts(long_poll, log.subscription, lease=0.3))
    second = asyncio.create_task(texts(long_poll, log.subscription, lease=0.3))
    queue = (await parked(long_poll, 2))[0]
    await log.publish("a")
    long_poll._scheduler.wake(log.shard_id, None)
    assert await first == [b"a"]
    assert len(queue.pulls) == 1
    assert await second == [b"a"]


async def parked(long_poll: LongPoll, count: int) -> list[Any]:
    def all_are() -> bool:
        pulls = [pull for queue in long_poll._queues.values() for pull in queue.pulls]
        return len(pulls) == count and all(pull.parked.done() for pull in pulls)

    await eventually(all_are)
    return list(long_poll._queues.values())


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> list[ClaimRequest]:
    """Every claim's request from now on."""
    requests: list[ClaimRequest] = []
    claim = claiming.claim_messages

    async def noted(connection: Any, request: ClaimRequest, attempt_ids: Any) -> Mapping[int, Claimed]:
        requests.append(request)
        return await claim(connection, request, attempt_ids)

    monkeypatch.setattr(claiming, "claim_messages", noted)
    return requests


async def others(log: Log, count: int) -> list[Subscription]:
    async with log.database.transaction() as connection:
        return [await add_subscription(connection, log.topic, f"other-{n}", log.start) for n in range(count)]


async def test_one_claim_serves_the_pulls_of_all_subscriptions_that_a_publish_wakes(
    log: Log, long_poll: LongPoll, claims: list[ClaimRequest]
) -> None:
    pulls = [asyncio.create_task(texts(long_poll, each)) for each in await others(log, 20)]
    await parked(long_poll, 20)
    claims.clear()
    await log.publish("a")
    long_poll._scheduler.wake(log.shard_id, None)
    assert await asyncio.gather(*pulls) == [[b"a"]] * 20
    assert [len(request.targets) for request in claims] == [20]


async def test_long_steps_of_a_claim_are_its_projects(
    log: Log, long_poll: LongPoll, claims: list[ClaimRequest]
) -> None:
    """They stand in one row with those of others."""
    await log.publish("a")
    assert await texts(long_poll, log.subscription) == [b"a"]
    turn: Any = claims[0].turn
    assert (turn.func, turn.args) == (long_poll._scheduler._loop_turns.turn, ("projects/p",))


async def test_what_is_wrong_with_one_subscription_fails_nobody_else(log: Log, long_poll: LongPoll) -> None:
    """They share a claim: its filter is none that PostgreSQL understands."""
    subscriptions = await others(log, 3)
    broken = replace(subscriptions[1], filter_path="no path at all")
    wanted = [subscriptions[0], broken, subscriptions[2]]
    await log.publish("a")
    async with all_connections(log, long_poll):  # so that they are claimed for together
        pulls = [asyncio.create_task(texts(long_poll, each)) for each in wanted]
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*pulls, return_exceptions=True)
    assert [outcomes[0], outcomes[2]] == [[b"a"], [b"a"]]
    assert isinstance(outcomes[1], Exception)


class all_connections:  # noqa: N801  (reads as what it does)
    """All turns are taken within the block."""

    def __init__(self, log: Log, long_poll: LongPoll) -> None:
        self._scheduler = long_poll._scheduler

    async def __aenter__(self) -> None:
        self._scheduler._serving += self._scheduler._turns_at_once

    async def __aexit__(self, *_: object) -> None:
        self._scheduler._serving -= self._scheduler._turns_at_once
        self._scheduler._serving += 1
        self._scheduler._tasks.start(self._scheduler._serve_turns(), name="claims")


# --- with claims that the test answers --------------------------------------------------------------------------


class StandingClock(DatabaseClock):
    """The event loop's own time, as a date."""

    def __init__(self) -> None:
        self._start = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=asyncio.get_running_loop().time())


@dataclass
class Eater:
    """A consumer that wants so many messages."""

    number: int
    appetite: int = 10
    shard_ids: tuple[int, ...] = (SHARD,)
    project: str = "p"
    filter_path: str | None = None
    in_doubt: bool = False
    urgent: bool = False
    got: list[int] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    asked_for_due: list[bool] = field(default_factory=list)

    @property
    def subscription(self) -> Subscription:
        return replace(
            Subscription(name=f"projects/{self.project}/subscriptions/s{self.number}", topic="projects/p/topics/t"),
            subscription_id=self.number,
            shard_ids=self.shard_ids,
            push_config=PushConfig(endpoint="http://far.example/"),
            extensions=Extensions(push=PushOptions(urgent=self.urgent)),
        )

    def wants(self) -> bool:
        return self.appetite > 0

    def begin(self, now: datetime, *, due: bool) -> ClaimTarget | None:
        if not self.wants():
            return None
        self.asked_for_due.append(due)
        request = DeliveryRequest(max_messages=self.appetite, max_bytes=1_000)
        return ClaimTarget(
            subscription_id=self.number,
            requests=(request,),
            ack_deadline=timedelta(seconds=60),
            retained_since=now,
            filter_path=self.filter_path,
            includes_due=due,
            wants_next=True,
        )

    def accept(self, answer: Answer) -> None:
        [deliveries] = answer.claimed.deliveries
        self.got += [len(delivery.messages) for delivery in deliveries]
        self.appetite -= sum(len(delivery.messages) for delivery in deliveries)
        self.rests.append(answer.claimed.rest)

    def fail(self, target: ClaimTarget | None, error: BaseException) -> None:
        self.failures.append(error)

    def wakes_at(self, *, held_up: bool) -> float | None:
        return None

    def woken(self) -> None:
        pass


@dataclass
class Claims:
    """`answer(request)` decides what claims bring.  Those of `stuck` shards take until `free`, if it is not set."""

    scheduler: ClaimScheduler
    answer: Callable[[ClaimRequest], Mapping[int, Claimed]]
    requests: list[ClaimRequest] = field(default_factory=list)
    stuck: Collection[int] = ()
    free: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def groups(self) -> list[list[int]]:
        return [[each.subscription_id for each in request.targets] for request in self.requests]


def nothing(rest: Rest) -> Claimed:
    return Claimed([()], rest)


def quiet(request: ClaimRequest) -> dict[int, Claimed]:
    return {each.subscription_id: nothing(Quiet()) for each in request.targets}


@pytest.fixture
async def played(log: Log, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> Claims:
    scheduler = pull_claims(log.database, StandingClock(), tasks)
    claims = Claims(scheduler, quiet)

    async def answer(connection: Any, request: ClaimRequest, attempt_ids: Any) -> Mapping[int, Claimed]:
        claims.requests.append(request)
        brought = claims.answer(request)
        for _ in range(10):  # whatever the answer has set off begins before the claim is over
            await asyncio.sleep(0)
        if request.shard_id in claims.stuck:
            await claims.free.wait()
        return brought

    monkeypatch.setattr(claiming, "claim_messages", answer)
    return claims


async def test_a_wake_up_during_a_claim_is_looked_at_after_it(played: Claims) -> None:
    eater = Eater(1)

    def woken_meanwhile(request: ClaimRequest) -> Mapping[int, Claimed]:
        if len(played.requests) == 1:
            played.scheduler.wake(SHARD, None)
        return quiet(request)

    played.answer = woken_meanwhile
    played.scheduler.add(eater)
    await eventually(lambda: len(eater.rests) == 2)


async def test_what_fell_due_during_a_claim_is_looked_for_after_it(played: Claims) -> None:
    """A nack: the claim under way may have looked before it was written."""
    eater = Eater(1)

    def nacked_meanwhile(request: ClaimRequest) -> Mapping[int, Claimed]:
        if len(played.requests) == 1:
            played.scheduler.wake(None, 1)
        return quiet(request)

    played.answer = nacked_meanwhile
    played.scheduler.add(eater)
    await eventually(lambda: len(eater.rests) == 2)
    assert eater.asked_for_due == [True, True]


async def test_who_wants_nothing_is_claimed_for_once_he_is_ready(played: Claims) -> None:
    eater = Eater(1, appetite=0)
    played.scheduler.add(eater)
    played.scheduler.wake(SHARD, None)
    await asyncio.sleep(0.01)
    assert played.requests == []
    eater.appetite = 1
    played.scheduler.ready(1)
    await eventually(lambda: eater.rests == [Quiet()])


async def test_an_alarm_rings_when_the_claim_said_so(played: Claims) -> None:
    eater = Eater(1)
    due: list[datetime] = []

    def due_soon(request: ClaimRequest) -> Mapping[int, Claimed]:
        if len(played.requests) > 1:
            return quiet(request)
        due.append(request.now + timedelta(milliseconds=50))
        return {1: nothing(Quiet(due[0]))}

    played.answer = due_soon
    played.scheduler.add(eater)
    await eventually(lambda: len(eater.rests) == 2)
    assert played.requests[1].now >= due[0]
    assert eater.asked_for_due == [True, True]


async def test_a_cursor_that_is_locked_is_waited_for_by_a_claim_for_it_alone(played: Claims) -> None:
    def locked(request: ClaimRequest) -> Mapping[int, Claimed]:
        if len(request.targets) == 1 and not request.skip_locked:
            return quiet(request)
        return {each.subscription_id: nothing(Locked()) for each in request.targets}

    played.answer = locked
    eaters = [Eater(number) for number in (1, 2, 3)]
    for eater in eaters:
        played.scheduler.add(eater)
    await eventually(lambda: all(eater.rests == [Locked(), Quiet()] for eater in eaters))
    assert sorted(played.groups) == [[1], [1, 2, 3], [2], [3]]


async def test_of_a_claim_that_fails_each_is_tried_alone(played: Claims) -> None:
    def poisoned(request: ClaimRequest) -> Mapping[int, Claimed]:
        if any(each.subscription_id == 2 for each in request.targets):
            raise Internal("for the test")
        return quiet(request)

    played.answer = poisoned
    eaters = [Eater(number) for number in (1, 2, 3)]
    for eater in eaters:
        played.scheduler.add(eater)
    await eventually(lambda: all(eater.rests or eater.failures for eater in eaters))
    assert [bool(eater.failures) for eater in eaters] == [False, True, False]
    assert played.groups[:4] == [[1, 2, 3], [1], [2], [3]]  # and then the one that failed, again and again


@pytest.mark.parametrize("error", [Unavailable, Aborted, Internal, RuntimeError])
async def test_what_could_not_be_claimed_is_tried_again(played: Claims, error: type[Exception]) -> None:
    def failing_once(request: ClaimRequest) -> Mapping[int, Claimed]:
        if len(played.requests) <= 3:  # what was Aborted is tried three times at once
            raise error("for the test")
        return quiet(request)

    played.answer = failing_once
    eater = Eater(1)
    played.scheduler.add(eater)
    await eventually(lambda: eater.rests == [Quiet()])
    assert eater.failures
    assert eater.asked_for_due[-1], "it may have been committed: what it took falls due"


async def test_while_one_has_more_the_others_get_their_turns(log: Log, tasks: Tasks, played: Claims) -> None:
    giant, small = Eater(1, appetite=10**9), Eater(2, shard_ids=(2,))
    turns = 1
    played.scheduler = pull_claims(log.database, StandingClock(), tasks, turns_at_once=turns)

    def endless(request: ClaimRequest) -> Mapping[int, Claimed]:
        rest = More() if len(played.requests) < 50 else Quiet()
        return {
            each.subscription_id: nothing(rest if each.subscription_id == 1 else Quiet())
            for each in request.targets
        }

    played.answer = endless
    played.scheduler.add(giant)
    await eventually(lambda: len(giant.rests) > 2)
    seen = len(played.requests)
    played.scheduler.add(small)
    await eventually(lambda: bool(small.rests))
    assert [2] in played.groups[seen : seen + 2 + turns]


async def test_a_neighbour_is_claimed_for_at_once_though_a_projects_claims_take_long(
    played: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 shards of another project there is always more; those claims that are under way do not end at all."""
    monkeypatch.setattr(played.scheduler._turns, "_long", 0.0)  # any claim is a long one
    shards = range(100, 140)
    played.answer = lambda request: {
        each.subscription_id: nothing(Quiet() if request.shard_id == SHARD else More()) for each in request.targets
    }
    for shard_id in shards:
        played.scheduler.add(Eater(shard_id, 10**9, (shard_id,), project="greedy"))
    await eventually(lambda: len(played.requests) > 100)  # it is known by now
    played.stuck = shards
    turns = played.scheduler._turns
    await eventually(lambda: turns.under_way == 5)
    neighbour = Eater(1)
    played.scheduler.add(neighbour)
    await eventually(lambda: neighbour.rests == [Quiet()])
    assert turns.under_way == 5, "of six: one is kept for whoever comes"
    played.free.set()
    await played.scheduler.stop()


async def test_projects_have_claims_of_their_own_on_a_topic_that_they_share(played: Claims) -> None:
    """So what a claim costs is one project's."""
    for number in (1, 2, 3, 4):
        played.scheduler.add(Eater(number, project="one" if number < 3 else "other"))
    await eventually(lambda: len(played.requests) == 2)
    assert played.groups == [[1, 2], [3, 4]]
    played.scheduler.wake(SHARD, None)
    await eventually(lambda: len(played.requests) == 4)
    assert played.groups[2:] == [[1, 2], [3, 4]]


async def test_what_is_in_doubt_is_claimed_for_together_and_has_turns_like_one_project(played: Claims) -> None:
    """Or whoever has a thousand projects would have a thousand turns for each of a neighbour's."""
    eaters = [Eater(number, project=f"p{number}", in_doubt=number != 3) for number in range(1, 6)]
    for eater in eaters:
        played.scheduler.add(eater)
    await eventually(lambda: len(played.requests) == 2)
    assert sorted(played.groups) == [[1, 2, 4, 5], [3]]
    eaters[0].in_doubt = False
    played.scheduler.wake(SHARD, None)
    await eventually(lambda: len(played.requests) == 5)
    assert sorted(played.groups[2:]) == [[1], [2, 4, 5], [3]], "the first does well by now"


async def test_who_looks_far_through_a_filter_has_turns_of_his_own_until_he_has_seen_all(
    played: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_scheduler, "LONG_SECONDS", 0.0)

    def far(request: ClaimRequest) -> Mapping[int, Claimed]:
        rest = More() if len(played.requests) < 4 else Quiet()
        return {each.subscription_id: nothing(rest if each.filter_path else Quiet()) for each in request.targets}

    played.answer = far
    for eater in (Eater(1, filter_path="$.a"), Eater(2)):
        played.scheduler.add(eater)
    await eventually(lambda: len(played.requests) == 4)
    assert played.groups == [[1, 2], [1], [1], [1]]
    played.scheduler.wake(SHARD, None)
    await eventually(lambda: len(played.requests) == 5)
    assert played.groups[4] == [1, 2]


async def test_nothing_is_claimed_for_who_was_removed(played: Claims) -> None:
    eater = Eater(1)

    def removed_meanwhile(request: ClaimRequest) -> Mapping[int, Claimed]:
        played.scheduler.remove(eater)
        return {1: Claimed([[Delivery(SHARD, 1, 1, [])]], More())}

    played.answer = removed_meanwhile
    played.scheduler.add(eater)
    await eventually(lambda: eater.got == [0])  # it learns of what it was given
    played.scheduler.wake(None, None)
    await asyncio.sleep(0.01)
    assert len(played.requests) == 1
    assert not played.scheduler.watched_shards()


async def test_whoever_wants_something_gets_his_turn_whatever_the_others_do(
    log: Log, tasks: Tasks, played: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crowded shards and lonely ones, where there is always more, wake-ups at random, and one claim at a time."""
    monkeypatch.setattr(claim_scheduler, "MAX_TARGETS", 3)
    for seed in range(20):
        played.requests.clear()
        played.scheduler = pull_claims(log.database, StandingClock(), tasks, turns_at_once=1)
        await _take_turns(played, random.Random(seed))


async def _take_turns(played: Claims, dice: random.Random) -> None:
    """Nobody is claimed for twice while another who wants something from the same shard is not.  No shard is left
    out either, though it is the time that claims take that is shared.
    """
    crowds = {shard_id: dice.randint(1, 9) for shard_id in range(1, dice.randint(2, 6))}
    numbers = itertools.count(1)
    eaters = [Eater(next(numbers), 10**9, (id_,)) for id_, count in crowds.items() for _ in range(count)]
    enough = 40 * len(crowds)

    def always_more(request: ClaimRequest) -> Mapping[int, Claimed]:
        if dice.random() < 0.5:
            played.scheduler.wake(dice.choice(list(crowds)), None)
        if dice.random() < 0.2:
            played.scheduler.wake(None, dice.choice(eaters).number)
        rest = More() if len(played.requests) < enough else Quiet()
        return {each.subscription_id: nothing(rest) for each in request.targets}

    played.answer = always_more
    for eater in eaters:
        played.scheduler.add(eater)
    await eventually(lambda: len(played.requests) >= enough)
    await played.scheduler.stop()
    turns = played.requests[:enough]
    assert {request.shard_id for request in turns} == set(crowds)
    for shard_id, count in crowds.items():
        served = [{each.subscription_id for each in turn.targets} for turn in turns if turn.shard_id == shard_id]
        claims_for_all = -(-count // 3)
        for number in range(len(served) - claims_for_all):
            assert len(set().union(*served[number : number + claims_for_all])) == count


@pytest.mark.parametrize("urgent", [True, False])
async def test_what_is_urgent_is_claimed_for_before_the_other_shards_of_its_project(
    played: Claims, urgent: bool
) -> None:
    """And before the others in its own shard; it is moved there, or back, when that is changed."""
    others = [Eater(number, shard_ids=(number,)) for number in range(1, 21)]
    alarm = Eater(99, shard_ids=(20,), urgent=not urgent)
    with nobody_served(played.scheduler):
        for eater in [*others, alarm]:
            played.scheduler.add(eater)
        alarm.urgent = urgent
        played.scheduler.add(alarm)
    await eventually(lambda: all(eater.rests for eater in [*others, alarm]))
    played.requests.clear()
    with nobody_served(played.scheduler):
        for shard_id in range(1, 21):
            played.scheduler.wake(shard_id, None)
    await eventually(lambda: sum(map(len, played.groups)) == 21)
    assert played.groups[0] == [99] if urgent else played.groups.index([20, 99]) > 1
    for eater in [*others, alarm]:
        played.scheduler.remove(eater)
    assert not played.scheduler.watched_shards()


@contextmanager
def nobody_served(scheduler: ClaimScheduler) -> Iterator[None]:
    """All turns are taken within the block."""
    scheduler._serving += scheduler._turns_at_once
    yield
    scheduler._serving -= scheduler._turns_at_once
    scheduler._serve_more()
