"""Forwards messages that failed too often to their dead-letter topics (A5).

A failure holds up neither other subscriptions nor other messages: a message that the database refuses is found by
halves, reported, and skipped for PASSED_BY.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from math import inf

from broker.core.context.core import Core
from broker.core.log.appending import ShardClosed, ShardFrozen
from broker.core.log.packing import Part
from broker.core.log.partitions import with_partitions
from broker.core.publishing.preparation import Preparation, Prepared
from broker.core.publishing.publish_rights import CheckPublisher, allow_any_publisher
from broker.core.publishing.publishing_rules import DEAD_LETTER
from broker.fairness.fair_turns import FairTurns, TurnFor
from broker.features.dead_letters.dead_letter_incidents import DeadLetterIncidents
from broker.features.dead_letters.forwarding.dead_letter_work import find_dead_letter_work
from broker.features.dead_letters.forwarding.forwarding import (
    MAX_DEAD_LETTERS,
    Forwarded,
    forward_dead_letters,
    retry_exhausted_attempts,
)
from broker.model.dead_letter import DEADLINE
from broker.model.errors import Aborted, BrokerError, Held, NotFound, PermissionDenied, Unavailable
from broker.model.message import NewMessage
from broker.model.names import project_of
from broker.model.subscription import Subscription
from broker.model.topic import Topic
from broker.observability.log import fields_of, reason
from broker.observability.metrics.families import DEAD_LETTERED, EXPIRED
from broker.observability.tally import Tally

CONTENDED_PART = 4  # divides the size of a batch, and so the length of its steps, beside other projects' calls
_CHECK_SECONDS = 1.0  # between two searches for work while batches follow one another
PASSED_BY = timedelta(
    seconds=20
)  # for which a message that the database refuses is skipped; the log has one line meanwhile
MAX_PASSED_BY = 1_000  # skipped messages of a process, of all subscriptions


class DeadLetterForwarder:
    """Forwards dead letters.  All processes run one; it skips rows that another has locked."""

    def __init__(
        self, core: Core, preparation: Preparation, check_publisher: CheckPublisher = allow_any_publisher
    ) -> None:
        self._preparation = preparation
        self._incidents, self._check_publisher = DeadLetterIncidents(core.states), check_publisher
        self._states = core.states
        # The time until which a message is skipped, by subscription, shard and sequence.
        self._passed_by: dict[tuple[int, int, int], datetime] = {}
        # Turns of subscriptions and shards with dead letters, charged by the seconds that batches take.
        self._turns = FairTurns[TurnFor[tuple[str, int]]](1, long=inf)
        self._waiting: set[tuple[str, int]] = set()
        self._counters, self._tenants, self._loop_turns = core.counters, core.tenants, core.loop_turns
        self._database = core.database
        self._clock = core.clock
        self._resources = core.resources
        self._wake_ups = core.wake_ups
        self._tally = Tally("dead letters")

    async def run_once(self) -> int:
        """Forwards all waiting dead letters, and logs counts once a minute.  Returns the number of messages.

        Projects take turns batch by batch, and in a project its subscriptions and shards (M1).  Raises Unavailable
        if the database is away.
        """
        self._tally.tick()
        clock = asyncio.get_running_loop().time
        await self._find_work()
        check_again_at = clock() + _CHECK_SECONDS
        forwarded = 0
        while (turn := self._turns.begin()) is not None:
            begun_at = clock()
            more = False
            try:
                count, more = await self._forward_in_turn(*turn.item)
            finally:
                self._turns.end(turn, clock() - begun_at)
                self._waiting.discard(turn.item)
            forwarded += count
            if more:
                self._ask(turn.item)
            if clock() >= check_again_at:
                await self._find_work()
                check_again_at = clock() + _CHECK_SECONDS
        return forwarded

    async def _find_work(self) -> None:
        """Queues all subscriptions and shards that have dead letters to forward."""
        async with self._database.hot() as connection:
            work = await find_dead_letter_work(connection, now=self._clock.now())
        for each in work:
            self._ask(each)

    def _ask(self, work: tuple[str, int]) -> None:
        if work not in self._waiting:
            self._waiting.add(work)
            self._turns.ask(TurnFor((project_of(work[0]), work), item=work))

    async def _forward_in_turn(self, subscription_name: str, shard_id: int) -> tuple[int, bool]:
        """Forwards a batch.  If other projects are waiting for the database, pauses for as long as
        the batch took.
        """
        clock = asyncio.get_running_loop().time
        begun_at = clock()
        try:
            count, more = await self._forward(subscription_name, shard_id)
        except (NotFound, Unavailable):
            return 0, False  # the subscription is gone, or the database is away, which is reported elsewhere
        except Exception as error:  # the others are forwarded nevertheless
            what = f"dead letters of {subscription_name} in shard {shard_id} wait, and are tried again and again"
            why = reason(error)
            self._states.happens(
                "dead letters that wait",
                f"{subscription_name} {shard_id}",
                what,
                why,
                error=None if isinstance(error, Aborted) else error,  # a conflict of transactions is not a fault
                fields=fields_of(subscription_name),
            )
            return 0, False
        if more and self._tenants.is_contended():
            await asyncio.sleep(clock() - begun_at)
        return count, more

    async def _forward(self, subscription_name: str, shard_id: int) -> tuple[int, bool]:
        subscription = await self._resources.subscription(subscription_name)
        policy = subscription.dead_letter_policy
        if policy is None:  # it was removed meanwhile
            await self._retry(subscription, shard_id)
            return 0, False
        try:
            await self._check_publisher(project_of(subscription.name), policy.dead_letter_topic)
            self._incidents.allowed(subscription)
            topic = await self._resources.topic(policy.dead_letter_topic)
            await self._preparation.check_open(topic, DEAD_LETTER)
            await self._preparation.check_quotas(topic, DEAD_LETTER)
            forward = partial(self._forward_batch, subscription, shard_id, topic)
            done = await with_partitions(self._database, self._clock.now, forward)
        except Held:
            return 0, False  # they stay exhausted, and wait
        except ShardFrozen:
            self._resources.drop(topic.name)
            return 0, False
        except PermissionDenied as error:
            self._incidents.denied(subscription, error.message.rstrip("."))
            return 0, False  # they wait, as for a topic that is frozen
        except (ShardClosed, NotFound):
            await self._retry(subscription, shard_id)
            return 0, False
        if done.count:
            self._tally.add(f"of {subscription.name} to {topic.name}", done.reasons)
            counts = self._counters.subscription(subscription.name)
            counts[DEAD_LETTERED] += done.count
            counts[EXPIRED] += done.reasons.get(DEADLINE, 0)
        for dead_letter_shard in done.shard_ids:
            self._wake_ups.published(dead_letter_shard)
        if done.count and subscription.enable_message_ordering:  # the next messages of the keys
            self._wake_ups.redeliverable(subscription.subscription_id)
        return done.count, done.more

    async def _forward_batch(self, subscription: Subscription, shard_id: int, topic: Topic) -> Forwarded:
        """Forwards a batch, without the messages that the database refused lately.

        If the database refuses another message, halves the batch until that message is found.
        """
        most = MAX_DEAD_LETTERS
        while True:
            tried: dict[int, str] = {}
            prepared: list[Prepared] = []
            try:
                async with self._database.hot() as connection:
                    done = await forward_dead_letters(
                        connection,
                        subscription=subscription,
                        shard_id=shard_id,
                        prepare=partial(self._prepare, topic, prepared),
                        now=self._clock.now(),
                        part=CONTENDED_PART if self._tenants.is_contended() else 1,
                        most=most,
                        but=self._refused(subscription.subscription_id, shard_id),
                        tried=tried,
                        turn=partial(self._loop_turns.turn, project_of(subscription.name)),
                    )
                self._preparation.charge(prepared, DEAD_LETTER)
                return done
            except (Unavailable, Aborted, NotFound):
                raise
            except BrokerError as error:
                if not tried or (len(tried) == 1 and len(self._passed_by) >= MAX_PASSED_BY):
                    raise
                if len(tried) == 1:
                    self._pass_by(subscription, shard_id, *tried.popitem(), error)
                    return Forwarded({}, (), more=True)
                most = len(tried) // 2

    async def _prepare(
        self, topic: Topic, prepared: list[Prepared], messages: Sequence[NewMessage]
    ) -> Sequence[Part]:
        """Packs messages for the dead-letter topic, and adds them to `prepared`."""
        prepared.append(await self._preparation.prepare(topic, messages, DEAD_LETTER))
        return prepared[-1].parts

    def _refused(self, subscription_id: int, shard_id: int) -> set[int]:
        """Returns the sequences of the messages that are skipped for now."""
        now = self._clock.now()
        self._passed_by = {key: until for key, until in self._passed_by.items() if now < until <= now + PASSED_BY}
        return {
            seq for (of_id, of_shard, seq) in self._passed_by if (of_id, of_shard) == (subscription_id, shard_id)
        }

    def _pass_by(self, subscription: Subscription, shard_id: int, seq: int, id_: str, error: Exception) -> None:
        self._passed_by[subscription.subscription_id, shard_id, seq] = self._clock.now() + PASSED_BY
        what = f"dead letter {id_} of {subscription.name} cannot be published, and is tried again and again"
        fields = fields_of(subscription.name, message_id=id_)
        self._states.happens(
            "dead letters that cannot be published", id_, what, reason(error), error=error, fields=fields
        )

    def report(self) -> None:
        """Logs what has not been logged yet.  Called when the broker stops."""
        self._tally.tick(at_once=True)

    async def _retry(self, subscription: Subscription, shard_id: int) -> None:
        self._resources.drop(subscription.name)
        if subscription.dead_letter_policy is not None:
            self._resources.drop(subscription.dead_letter_policy.dead_letter_topic)
        async with self._database.hot() as connection:
            await retry_exhausted_attempts(
                connection, subscription=subscription, shard_id=shard_id, now=self._clock.now()
            )
        self._wake_ups.redeliverable(subscription.subscription_id)
