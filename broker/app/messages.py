"""The parts that claim, acknowledge and publish messages, and how many of each run at the same time.

All of them use the connections for hot statements, of which there are `pool_size`.
"""

from collections.abc import Callable

from broker.app.config import AppConfig
from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.acking.ack_writer import AckWriter
from broker.core.acking.delivery_recorder import DeliveryRecords
from broker.core.claiming.claim_scheduler import ClaimScheduler
from broker.core.context.core import Core
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.log.shard_heads import ShardHeads
from broker.core.process.jitter import Jitter
from broker.core.process.tails import Tails
from broker.core.publishing.preparation import Preparation
from broker.core.publishing.publish_coalescer import PublishCoalescer
from broker.core.pulling.long_poll import LongPoll
from broker.core.pulling.outstanding import Outstanding
from broker.core.pulling.readers import Readers

ACK_FLUSHES_AT_ONCE = 4  # flushes are short, so they need fewer turns than claims


class Claiming:
    """Delivers messages to pulls, streams and pushes, and keeps track of the callers that wait for messages."""

    def __init__(
        self, config: AppConfig, core: Core, *, jitter: Jitter, has_capacity: Callable[[str], bool]
    ) -> None:
        """`jitter` lengthens retry delays.  Pulls claim nothing unless there is room in memory for their answers.

        Pulls and pushes claim apart: a flood of one leaves connections to the other, to publishes and to acks.
        """
        self.pulls = ClaimScheduler(
            core,
            jitter=jitter,
            turns_at_once=max(config.pool_size - 2, 1),
            waits=True,
        )
        # Two turns: one claim can begin while the rows of the other are read.
        self.pushes = ClaimScheduler(core, jitter=jitter, turns_at_once=2, waits=False)
        self.long_poll = LongPoll(
            core,
            self.pulls,
            max_waiting=config.max_waiting_pulls,
            has_capacity=has_capacity,
            is_current=core.resources.is_current,
        )
        self.tails = Tails()
        self.outstanding = Outstanding(core.database, core.clock)
        self.readers = Readers(core.database, core.clock)
        self.activity = SubscriptionActivity(core.database, core.clock, in_use=self._in_use)
        self.heads = ShardHeads(core.database, watched=self._watched_shards, wake=self.wake)

    def wake(self, shard_id: int | None, subscription_id: int | None = None) -> None:
        """Messages may be claimed in a shard, or of a subscription; neither given: anywhere."""
        self.pulls.wake(shard_id, subscription_id)
        self.pushes.wake(shard_id, subscription_id)
        if subscription_id is None:
            self.tails.wake(shard_id)

    def resource_changed(self, name: str | None) -> None:
        """Notifies the parts of a change of a topic or a subscription; None: any of them may have changed."""
        self.long_poll.subscription_changed(name)
        self.tails.changed(name)
        self.outstanding.notify()

    def stop_waiting(self) -> None:
        """Answers the pulls that wait, and lets no other wait: the process is about to stop."""
        self.long_poll.stop_waiting()
        self.tails.stop()

    def _in_use(self) -> set[int]:
        return {*self.long_poll.waited_for(), *self.outstanding.subscriptions()}

    def _watched_shards(self) -> set[int]:
        return {*self.pulls.watched_shards(), *self.pushes.watched_shards(), *self.tails.watched_shards()}


class Acking:
    """Acknowledges messages of pulls and pushes, and records who did."""

    def __init__(self, config: AppConfig, core: Core, claiming: Claiming, *, jitter: Jitter) -> None:
        self.records = DeliveryRecords(core, on=config.delivery_record_hours > 0)
        self.coalescer = AckCoalescer(
            core,
            AckWriter(core, jitter=jitter, records=self.records),
            claiming.activity,
            flushes_at_once=min(ACK_FLUSHES_AT_ONCE, config.pool_size // 2 + 1),
            acked=claiming.readers.acked,
            nacked=claiming.readers.nacked,
            settled=claiming.outstanding.remove,
        )


class Publishing:
    """Checks messages by the rules of publishing, and appends them."""

    def __init__(self, config: AppConfig, core: Core) -> None:
        self.coalescer = PublishCoalescer(core, shards_at_once=max(config.pool_size - 2, 1))
        self.preparation = Preparation(core, is_busy=self.coalescer.is_busy)


class Messages:
    """The three parts of this module, in the order in which they need each other."""

    def __init__(
        self, config: AppConfig, core: Core, *, jitter: Jitter, has_capacity: Callable[[str], bool]
    ) -> None:
        """The arguments are those of Claiming."""
        self.claiming = Claiming(config, core, jitter=jitter, has_capacity=has_capacity)
        self.acking = Acking(config, core, self.claiming, jitter=jitter)
        self.publishing = Publishing(config, core)
