"""Pulls: claiming for them now, or parking them until there is something (A7, C7).

All pulls of a subscription in this process stand in one queue, and one task claims for all of them at a time;
each still gets a response, and an attempt, of its own.  A queue is claimed for when a pull joins it, when its
shards are published to, when a redelivery falls due, and when another process says so.  Pulls join before they
claim, so a wake-up between a claim and the wait for the next is never lost: it marks the queue as worth a look.

What may wait is bounded: pulls by number (one takes some 16 KB, most of it its connection); by time, since a pull
that nobody got round to claiming for is refused; claims by leaving connections to publishes and acks; and answers,
since nothing is claimed while slow readers hold as much as the process may hold for them.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta

from broker.domain.attempt_ids import AttemptIds
from broker.domain.delivery import MAX_MESSAGES_PER_ATTEMPT, Delivery, Demand
from broker.domain.errors import Aborted, BrokerError, Unavailable
from broker.domain.subscription import Subscription
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.jitter import Jitter, retry_jitter
from broker.runtime.key_owners import KeyOwners
from broker.runtime.pull_queue import PLAIN_TERMS, PullQueue, PullTerms, WaitingPull, demands_of, take
from broker.runtime.retrying import retrying
from broker.runtime.tasks import Tasks
from broker.store.claim.claim import claim_messages
from broker.store.claim.request import Claimant, Claimed, ClaimRequest, Gone, More, Quiet
from broker.store.driver.database import Database
from broker.store.log.delivery_attempts import release_attempts

logger = logging.getLogger(__name__)

MAX_WAITING_PULLS = 20_000
CLAIM_SECONDS = 5.0  # within which a pull is being claimed for; see publish_coalescer.MAX_WAIT_SECONDS
MAX_LOOKS = 20  # after which a claim answers with nothing, though there is more to look at
_SHORTEST_ALARM_SECONDS = 0.001


class SubscriptionChanged(Exception):
    """The subscription was changed or deleted while the pull waited: read it again."""


class LongPoll:
    """The pulls of this process."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        attempt_ids: AttemptIds,
        tasks: Tasks,
        *,
        jitter: Jitter = retry_jitter,
        max_waiting: int = MAX_WAITING_PULLS,
        claims_at_once: int = 6,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """`max_waiting` pulls of all subscriptions; `has_room()`: whether more answers may be made."""
        self._max_waiting = max_waiting
        self._claims = asyncio.Semaphore(claims_at_once)
        self._has_room = has_room
        self._pulls = 0  # in pull()
        self._database = database
        self._clock = clock
        self._attempt_ids = attempt_ids
        self._tasks = tasks
        self._jitter = jitter
        self._queues: dict[int, PullQueue] = {}  # by subscription
        self._watchers: dict[int, set[PullQueue]] = {}  # by shard
        self.key_owners = KeyOwners()
        self._stopping = False

    async def pull(
        self,
        subscription: Subscription,
        demand: Demand,
        *,
        wait_seconds: float,
        hung_up: Callable[[], Awaitable[None]] | None = None,
        terms: PullTerms = PLAIN_TERMS,
    ) -> list[Delivery]:
        """Messages for one pull; empty if there are none within `wait_seconds` (0: do not wait).

        `hung_up()` completes when the caller is gone; it is only awaited while the pull is parked.
        What was claimed for a caller that left, or that is cancelled, is released.
        Raises SubscriptionChanged, Unavailable.
        """
        if self._pulls >= self._max_waiting:
            raise Unavailable("Too many pulls wait in this process; try again.")
        queue = self._queue(subscription)
        loop = asyncio.get_running_loop()
        wait = wait_seconds > 0 and not self._stopping
        answer, parked = loop.create_future(), loop.create_future()
        pull = WaitingPull(demand, wait, answer, parked, queue.claims, terms)
        queue.pulls.append(pull)
        self._look(queue)
        self._pulls += 1
        try:
            await self._claimed_for(queue, pull)
            if pull.answer.done():
                return pull.answer.result()
            return await self._wait_parked(queue, pull, wait_seconds, hung_up)
        except asyncio.CancelledError:
            if not self._leave(queue, pull):
                release = self._release_answer(subscription.subscription_id, pull)
                self._tasks.start(release, name=f"release for {subscription.name}")
            raise
        finally:
            self._pulls -= 1

    async def release(self, subscription_id: int, deliveries: Sequence[Delivery]) -> None:
        """Give back deliveries that reached nobody: due at once, the attempt not counted.

        If that cannot be written their leases run out: nothing that anybody waits for has failed.
        """
        try:
            await self._release(subscription_id, deliveries)
        except BrokerError as error:
            logger.debug("messages that reached nobody will fall due by themselves: %s", error)
        else:
            self.wake(None, subscription_id)

    async def _release(self, subscription_id: int, deliveries: Sequence[Delivery]) -> None:
        for shard_id in sorted({delivery.shard_id for delivery in deliveries}):
            async with self._database.hot() as connection:
                await release_attempts(
                    connection,
                    shard_id=shard_id,
                    subscription_id=subscription_id,
                    attempt_ids=[d.attempt_id for d in deliveries if d.shard_id == shard_id],
                    now=self._clock.now(),
                )

    def wake(self, shard_id: int | None, subscription_id: int | None) -> None:
        """Something can be claimed in a shard, or of a subscription; neither given: anywhere."""
        if shard_id is not None:
            for queue in tuple(self._watchers.get(shard_id, ())):
                self._look(queue)
        elif subscription_id is not None:
            if subscription_id in self._queues:
                self._look(self._queues[subscription_id])
        else:
            for queue in tuple(self._queues.values()):
                self._look(queue)

    def subscription_changed(self, name: str | None) -> None:
        """Send the waiting pulls of a subscription (None: of all) to read it again."""
        for queue in [q for q in self._queues.values() if name in (None, q.subscription.name)]:
            queue.changed = True
            self._send_away(queue, SubscriptionChanged())

    def stop_waiting(self) -> None:
        """Answer every pull that waits with what there is: nothing.  From now on none waits."""
        self._stopping = True
        for queue in tuple(self._queues.values()):
            for pull in queue.pulls:
                if not pull.answer.done():
                    pull.answer.set_result([])
            queue.pulls.clear()
            self._forget_if_idle(queue)

    @property
    def is_stopping(self) -> bool:
        """No pull waits any more."""
        return self._stopping

    def waited_for(self) -> Collection[int]:
        """The subscriptions that a pull of this process waits for."""
        return self._queues.keys()

    def watched_shards(self) -> Collection[int]:
        """The shards of those subscriptions."""
        return self._watchers.keys()

    # --- the queue of a subscription ---------------------------------------------------------------------

    def _queue(self, subscription: Subscription) -> PullQueue:
        queue = self._queues.get(subscription.subscription_id)
        if queue is None:
            queue = self._queues[subscription.subscription_id] = PullQueue(subscription)
            for shard_id in subscription.shard_ids:
                self._watchers.setdefault(shard_id, set()).add(queue)
        queue.subscription = subscription
        return queue

    def _forget_if_idle(self, queue: PullQueue) -> None:
        if queue.pulls or queue.claiming:
            return
        if queue.alarm is not None:
            queue.alarm.cancel()
        self._queues.pop(queue.subscription.subscription_id, None)
        for shard_id in queue.subscription.shard_ids:
            watchers = self._watchers.get(shard_id, set())
            watchers.discard(queue)
            if not watchers:
                self._watchers.pop(shard_id, None)

    def _look(self, queue: PullQueue) -> None:
        queue.worth_a_look = True
        if not queue.claiming and queue.pulls:
            queue.claiming = True
            self._tasks.start(self._run(queue), name=f"claim for {queue.subscription.name}")

    async def _claimed_for(self, queue: PullQueue, pull: WaitingPull) -> None:
        """Wait until there is an answer or the pull is parked."""
        first = (pull.answer, pull.parked)
        await asyncio.wait(first, timeout=CLAIM_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not (pull.answer.done() or pull.parked.done()):
            self._give_up(queue, pull)
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)

    async def _wait_parked(
        self,
        queue: PullQueue,
        pull: WaitingPull,
        wait_seconds: float,
        hung_up: Callable[[], Awaitable[None]] | None,
    ) -> list[Delivery]:
        if hung_up is None:
            await asyncio.wait((pull.answer,), timeout=wait_seconds)
        else:
            gone = asyncio.ensure_future(hung_up())
            try:
                await asyncio.wait((pull.answer, gone), timeout=wait_seconds, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
        if pull.answer.done():
            return pull.answer.result()
        if self._leave(queue, pull):
            return []
        await asyncio.wait((pull.answer,))  # a claim for it is in flight, its outcome counts
        return pull.answer.result()

    def _leave(self, queue: PullQueue, pull: WaitingPull) -> bool:
        """Leave the queue; False if the pull is claimed for already, or answered: it waits for no other then."""
        if queue.pulls.leave(pull):
            self._forget_if_idle(queue)
            return True
        pull.wait = False
        return False

    async def _release_answer(self, subscription_id: int, pull: WaitingPull) -> None:
        """For a caller that was cancelled: why a claim has failed is nothing to him any more."""
        await asyncio.wait((pull.answer,))
        if pull.answer.exception() is None and (deliveries := pull.answer.result()):
            await self.release(subscription_id, deliveries)

    def _give_up(self, queue: PullQueue, pull: WaitingPull) -> None:
        """Nobody got round to it in time; but if a claim for it is in flight, its outcome counts."""
        if queue.pulls.leave(pull):
            self._forget_if_idle(queue)
            raise Unavailable("The database is slow, or too many pulls wait before this one; try again.")

    def _fail(self, queue: PullQueue, claimed_for: list[WaitingPull], error: BaseException) -> None:
        """End the pulls that a claim failed for, and those that stand behind them."""
        for pull in claimed_for:
            pull.fail(error)
        self._send_away(queue, error)

    def _send_away(self, queue: PullQueue, reason: BaseException) -> None:
        while queue.pulls:
            queue.pulls.popleft().fail(reason)
        self._forget_if_idle(queue)

    # --- claiming ----------------------------------------------------------------------------------------

    async def _run(self, queue: PullQueue) -> None:
        pulls: list[WaitingPull] = []
        try:
            while queue.worth_a_look and queue.pulls:
                queue.worth_a_look = False
                pulls = take(queue.pulls)
                await self._claim(queue, pulls)
        except (BrokerError, SubscriptionChanged) as error:
            self._fail(queue, pulls, error)
        except asyncio.CancelledError:
            self._fail(queue, pulls, Unavailable("The broker stops."))
            raise
        except BaseException as fault:  # nobody foresaw it: the callers' door logs it and answers INTERNAL
            self._fail(queue, pulls, fault)
            raise
        finally:
            queue.claiming = False
            self._forget_if_idle(queue)

    async def _claim(self, queue: PullQueue, pulls: list[WaitingPull]) -> None:
        """Claim for `pulls` from each shard in turn, answer those that got something, park the others."""
        subscription, queue.changed = queue.subscription, False
        queue.claims += 1
        queue.exhausted = True
        if not self._has_room():
            raise Unavailable("Too much is on its way to slow readers; try again.")
        hungry = pulls
        alarms: list[datetime] = []
        for shard_id in random.sample(subscription.shard_ids, len(subscription.shard_ids)):
            if hungry:
                hungry = await self._claim_shard(queue, subscription, shard_id, hungry, alarms)
        if hungry:
            self._nothing_left(queue, hungry)
        elif queue.pulls:
            queue.worth_a_look = True
        self._set_alarm(queue, min(alarms, default=None))

    def _nothing_left(self, queue: PullQueue, hungry: list[WaitingPull]) -> None:
        """Park the pulls that the claim had nothing for, and if there is nothing at all, those behind them that had
        joined before it began.

        Those behind that are parked already stand before those that are not.
        """
        late: list[WaitingPull] = []
        behind: list[WaitingPull] = []
        while queue.exhausted and queue.pulls and not queue.pulls.last.parked.done():
            pull = queue.pulls.pop()
            (late if pull.joined == queue.claims else behind).append(pull)
        queue.pulls.extend(pull for pull in reversed(behind) if self._park(queue, pull))
        queue.pulls.extend(reversed(late))
        queue.pulls.put_back([pull for pull in reversed(hungry) if self._park(queue, pull)])

    def _park(self, queue: PullQueue, pull: WaitingPull) -> bool:
        """Returns whether it goes on waiting; else it is answered."""
        if pull.wait and queue.changed:
            pull.fail(SubscriptionChanged())
        elif pull.wait and not self._stopping:
            if not pull.parked.done():
                pull.parked.set_result(None)
            return True
        else:
            pull.answer.set_result([])
        return False

    async def _claim_shard(
        self,
        queue: PullQueue,
        subscription: Subscription,
        shard_id: int,
        pulls: list[WaitingPull],
        alarms: list[datetime],
    ) -> list[WaitingPull]:
        """Claim in one shard; returns the pulls that got nothing."""
        claimed = await retrying(lambda: self._claim_until_found(subscription, shard_id, pulls), Aborted)
        if isinstance(claimed.rest, Gone):
            raise SubscriptionChanged
        for pull, deliveries in zip(pulls, claimed.deliveries, strict=True):
            if deliveries:
                self.key_owners.note(subscription.subscription_id, pull.terms.owner, deliveries)
                pull.answer.set_result(list(deliveries))
        hungry = [pull for pull, d in zip(pulls, claimed.deliveries, strict=True) if not d]
        match claimed.rest:
            case More() if hungry:  # go on in a moment
                queue.exhausted = False
                alarms.append(self._clock.now())
            case Quiet(datetime() as until):
                alarms.append(until)
        return hungry

    async def _claim_until_found(
        self, subscription: Subscription, shard_id: int, pulls: list[WaitingPull]
    ) -> Claimed:
        """All that was looked at may have been messages that do not match, or rows whose retry delay begins."""
        for _ in range(MAX_LOOKS):
            claimed = await self._claim_once(subscription, shard_id, pulls)
            if any(claimed.deliveries) or not isinstance(claimed.rest, More):
                break
        return claimed

    async def _claim_once(self, subscription: Subscription, shard_id: int, pulls: list[WaitingPull]) -> Claimed:
        request = self._request(subscription, shard_id, pulls)
        async with self._claims, self._database.hot() as connection:
            return (await claim_messages(connection, request, self._attempt_ids))[subscription.subscription_id]

    def _request(self, subscription: Subscription, shard_id: int, pulls: list[WaitingPull]) -> ClaimRequest:
        now = self._clock.now()
        deadline = pulls[0].terms.ack_deadline  # which is all of theirs
        claimant = Claimant(
            subscription_id=subscription.subscription_id,
            demands=demands_of(pulls),
            ack_deadline=timedelta(seconds=subscription.ack_deadline_seconds) if deadline is None else deadline,
            retained_since=now - subscription.retention,
            retry_policy=subscription.retry_policy,
            filter_path=subscription.filter_path,
            max_attempts=subscription.max_delivery_attempts,
            exactly_once=subscription.enable_exactly_once_delivery,
            ordered=subscription.enable_message_ordering,
            max_run=1 if subscription.extensions.one_per_ordering_key else MAX_MESSAGES_PER_ATTEMPT,
            preferred=self.key_owners.preferred(subscription.subscription_id, [pull.terms.owner for pull in pulls]),
        )
        return ClaimRequest(
            shard_id=shard_id, claimants=[claimant], now=now, clock=self._clock.now, jitter=self._jitter()
        )

    def _set_alarm(self, queue: PullQueue, due: datetime | None) -> None:
        if queue.alarm is not None:
            queue.alarm.cancel()
            queue.alarm = None
        if due is not None and queue.pulls:
            delay = max((due - self._clock.now()).total_seconds(), _SHORTEST_ALARM_SECONDS)
            queue.alarm = asyncio.get_running_loop().call_later(delay, self._look, queue)
