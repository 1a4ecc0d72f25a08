"""Pulls: messages are claimed for them now, or they wait until there are some (A7, C7).

All pulls of a subscription in this process are in one queue (pull_queue.py), for which the scheduler claims.  Each
pull still gets a response and an attempt of its own.  A pull joins the queue before the queue is checked, so a
wake-up between a claim and the wait for the next one is not lost.

Waiting pulls are bounded in four ways:

* By number (a pull takes about 16 KB, most of it for its connection).  Projects share the number, and subscriptions
  share that of their project (shared_capacity.py).  Pulls that do not wait are counted separately, and those that
  wait leave capacity for them.
* By time: a pull is refused if no claim was made for it in time.
* Claims leave connections for publishes and acks.
* Nothing is claimed while slow readers hold as many bytes of responses as the process allows.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from broker.core.acking.delivery_attempts import release_attempts
from broker.core.acking.delivery_counts import DeliveryCounts
from broker.core.claiming.claim_scheduler import ClaimScheduler
from broker.core.context.core import Core
from broker.core.process.tasks import first_done
from broker.core.pulling.key_owners import KeyOwners
from broker.core.pulling.pull_queue import PLAIN_TERMS, PullQueue, PullTerms, SubscriptionChanged, WaitingPull
from broker.core.records.journal import written_down
from broker.fairness.shared_capacity import Over, SharedCapacity
from broker.model.ack_id import attempt_name
from broker.model.delivery import Delivery, DeliveryRequest
from broker.model.errors import BrokerError, Unavailable
from broker.model.journal import Attribution
from broker.model.names import project_of
from broker.model.subscription import Subscription

logger = logging.getLogger(__name__)

MAX_WAITING_PULLS = 20_000
CLAIM_SECONDS = 5.0  # within which a claim for a pull begins; see publish_coalescer.MAX_WAIT_SECONDS


class LongPoll:
    """The pulls of this process."""

    def __init__(
        self,
        core: Core,
        scheduler: ClaimScheduler,
        *,
        max_waiting: int = MAX_WAITING_PULLS,
        has_capacity: Callable[[str], bool] = lambda _: True,
        is_current: Callable[[Subscription], bool] = lambda _: True,
    ) -> None:
        """`scheduler` claims for pulls alone.  `max_waiting` pulls of all subscriptions wait, and as many
        are under way that do not; `has_capacity(name)`: whether more answers may be made of a subscription;
        `is_current(subscription)`: whether no change of it was heard of since it was read.
        """
        self._counts = DeliveryCounts(core.counters)
        self._waiting = SharedCapacity(max_waiting)
        self._at_once = SharedCapacity(max_waiting)
        self._has_capacity, self._is_current = has_capacity, is_current
        self._database = core.database
        self._clock = core.clock
        self._scheduler = scheduler
        self._tasks = core.tasks
        self._queues: dict[int, PullQueue] = {}  # by subscription
        self._by_name: dict[str, PullQueue] = {}
        self.key_owners = KeyOwners()
        self._stopping = False

    async def pull(
        self,
        subscription: Subscription,
        request: DeliveryRequest,
        *,
        wait_seconds: float,
        hung_up: Callable[[], Awaitable[None]] | None = None,
        terms: PullTerms = PLAIN_TERMS,
    ) -> list[Delivery]:
        """Pulls messages; empty if there are none within `wait_seconds` (0: do not wait).

        `hung_up()` completes when the caller is gone; it is only awaited while the pull is parked.  Messages that
        were claimed for a caller that left, or that is cancelled, are released.  Raises SubscriptionChanged,
        Unavailable.
        """
        wait = wait_seconds > 0 and not self._stopping
        shared_capacity, path = (
            self._waiting if wait else self._at_once,
            (project_of(subscription.name), subscription.name),
        )
        over = shared_capacity.take(path)
        if over is not None:
            raise _too_many(over, wait=wait)
        try:
            loop = asyncio.get_running_loop()
            pull = WaitingPull(request, wait, loop.create_future(), loop.create_future(), terms)
            deliveries = await self._pull(subscription, pull, wait_seconds, hung_up)
            if deliveries:
                self._counts.sent(subscription.name, deliveries, self._clock.now())
            return deliveries
        finally:
            shared_capacity.give_back(path)

    async def _pull(
        self,
        subscription: Subscription,
        pull: WaitingPull,
        wait_seconds: float,
        hung_up: Callable[[], Awaitable[None]] | None,
    ) -> list[Delivery]:
        if subscription.pause is not None and not pull.wait:
            return []
        if pull.wait and not self._is_current(subscription):  # it would miss that change
            raise SubscriptionChanged
        queue = self._queue(subscription)
        queue.join(pull)
        if subscription.pause is not None:
            pull.parked.set_result(None)  # until the subscription is changed
        self._scheduler.add(queue)
        try:
            await self._claimed_for(queue, pull)
            if pull.answer.done():
                return pull.answer.result()
            return await self._wait_parked(queue, pull, wait_seconds, hung_up)
        except asyncio.CancelledError:
            if not queue.leave(pull):
                release = self._release_answer(subscription, pull)
                self._tasks.start(release, name=f"release for {subscription.name}")
            raise

    async def release(self, subscription: Subscription, deliveries: Sequence[Delivery]) -> None:
        """Releases deliveries that reached no client: they are due at once, and the attempt is not counted.

        If that cannot be written their ack deadlines pass: no call fails for it.
        """
        try:
            await self._release(subscription, deliveries)
        except BrokerError as error:
            logger.debug("messages that reached nobody will fall due by themselves: %s", error)
        else:
            self._scheduler.wake(None, subscription.subscription_id)

    async def _release(self, subscription: Subscription, deliveries: Sequence[Delivery]) -> None:
        subscription_id, journal, clock = subscription.subscription_id, subscription.journal, self._clock.now
        for shard_id in sorted({delivery.shard_id for delivery in deliveries}):
            names = [attempt_name(subscription_id, each) for each in deliveries if each.shard_id == shard_id]
            journaled = journal is not None
            async with (
                self._database.hot() if journaled else self._database.at_any_node(shard_id) as connection,
                written_down(
                    connection, shard_id=shard_id, attempts=names, journaled=journaled, clock=clock
                ) as ledger,
            ):
                await release_attempts(
                    connection,
                    shard_id=shard_id,
                    subscription_id=subscription_id,
                    attempt_ids=[name.attempt_id for name in names],
                    now=clock(),
                )
                if ledger is not None and journal is not None:
                    ledger.released(names, Attribution(journal))

    def subscription_changed(self, name: str | None) -> None:
        """Send the waiting pulls of a subscription (None: of all) to read it again."""
        if name is not None:
            queues = [self._by_name[name]] if name in self._by_name else []
        else:
            queues = list(self._queues.values())
        for queue in queues:
            queue.change()

    def stop_waiting(self) -> None:
        """Answer every pull that waits with what there is: nothing.  From now on none waits."""
        self._stopping = True
        for queue in tuple(self._queues.values()):
            queue.stop()

    @property
    def is_stopping(self) -> bool:
        """Whether no pull waits any more."""
        return self._stopping

    def waited_for(self) -> Collection[int]:
        """The subscriptions that a pull of this process waits for."""
        return self._queues.keys()

    def _queue(self, subscription: Subscription) -> PullQueue:
        queue = self._queues.get(subscription.subscription_id)
        if queue is None:
            queue = PullQueue(subscription, self.key_owners, has_capacity=self._has_capacity, idle=self._forget)
            self._queues[subscription.subscription_id] = self._by_name[subscription.name] = queue
        queue.subscription = subscription
        return queue

    def _forget(self, queue: PullQueue) -> None:
        if self._queues.get(queue.subscription.subscription_id) is queue:
            del self._queues[queue.subscription.subscription_id]
            if self._by_name.get(queue.subscription.name) is queue:  # otherwise a new subscription has the name
                del self._by_name[queue.subscription.name]
            self._scheduler.remove(queue)

    async def _claimed_for(self, queue: PullQueue, pull: WaitingPull) -> None:
        """Wait until there is an answer or the pull is parked."""
        await first_done(pull.answer, pull.parked, seconds=CLAIM_SECONDS)
        if not (pull.answer.done() or pull.parked.done()):
            # There was no claim for it in time; but if one is in flight, its outcome counts.
            if queue.give_up(pull):
                raise Unavailable("The database is slow, or too many pulls wait before this one; try again.")
            await asyncio.wait((pull.answer, pull.parked), return_when=asyncio.FIRST_COMPLETED)

    async def _wait_parked(
        self,
        queue: PullQueue,
        pull: WaitingPull,
        wait_seconds: float,
        hung_up: Callable[[], Awaitable[None]] | None,
    ) -> list[Delivery]:
        if hung_up is None:
            await first_done(pull.answer, seconds=wait_seconds)
        else:
            gone = asyncio.ensure_future(hung_up())
            try:
                await first_done(pull.answer, gone, seconds=wait_seconds)
            finally:
                gone.cancel()
        if pull.answer.done():
            return pull.answer.result()
        if queue.leave(pull):
            return []
        await asyncio.wait((pull.answer,))  # a claim for it is in flight, and its outcome counts
        return pull.answer.result()

    async def _release_answer(self, subscription: Subscription, pull: WaitingPull) -> None:
        """Releases the answer of a cancelled call.

        The reason of a failed claim no longer matters to its caller.
        """
        await asyncio.wait((pull.answer,))
        if pull.answer.exception() is None and (deliveries := pull.answer.result()):
            await self.release(subscription, deliveries)


def _too_many(over: Over, *, wait: bool) -> Unavailable:
    """Returns the error for too many pulls.  It has no numbers: the log counts different errors one by one."""
    what = "wait in this process" if wait else "that do not wait are under way in this process"
    if not over.path:
        return Unavailable(f"Too many pulls {what}; try again.")
    who = over.path[-1]
    return Unavailable(f"Too many pulls {what} for {who}: it has its share; use fewer at a time, or try again.")
