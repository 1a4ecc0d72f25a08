"""How many may do what at the same time: the parts that claim, acknowledge and publish, for one process."""

from collections.abc import Callable

from broker.app_config import AppConfig
from broker.runtime.ack_coalescer import AckCoalescer
from broker.runtime.ack_writer import AckWriter
from broker.runtime.claim_scheduler import ClaimScheduler
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.jitter import Jitter
from broker.runtime.long_poll import LongPoll
from broker.runtime.outstanding import Outstanding
from broker.runtime.publish_coalescer import PublishCoalescer
from broker.runtime.readers import Readers
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.runtime.tasks import Tasks
from broker.runtime.wake_ups import WakeUps
from broker.store.driver.database import Database
from broker.store.log.attempt_ids import AttemptIds

ACK_FLUSHES_AT_ONCE = 3  # and one that began alone; beside claims they are few, for they are short


def make_claims(
    config: AppConfig,
    database: Database,
    clock: DatabaseClock,
    tasks: Tasks,
    attempt_ids: AttemptIds,
    jitter: Jitter,
) -> tuple[ClaimScheduler, ClaimScheduler]:
    """For pulls, and for pushes: a flood of one leaves connections to the other, to publishes and to acks."""
    parts = database, clock, attempt_ids, tasks
    for_pulls = max(config.pool_size - 2, 1)
    return (
        ClaimScheduler(*parts, jitter=jitter, turns_at_once=for_pulls, waits=True),
        # One claims while the rows of the other are on their way.
        ClaimScheduler(*parts, jitter=jitter, turns_at_once=2, waits=False),
    )


def make_long_poll(
    config: AppConfig,
    database: Database,
    clock: DatabaseClock,
    tasks: Tasks,
    claims: ClaimScheduler,
    *,
    has_room: Callable[[], bool],
) -> LongPoll:
    """Of all pulls that wait; it claims nothing while there is no room for what it would answer."""
    return LongPoll(database, clock, claims, tasks, max_waiting=config.max_waiting_pulls, has_room=has_room)


def make_acks(
    config: AppConfig,
    writer: AckWriter,
    tasks: Tasks,
    activity: SubscriptionActivity,
    outstanding: Outstanding,
    readers: Readers,
) -> AckCoalescer:
    """Of pulls and of pushes."""
    at_once = max(1, min(ACK_FLUSHES_AT_ONCE, config.pool_size // 2))
    return AckCoalescer(
        writer, tasks, activity, flushes_at_once=at_once, acked=readers.acked, settled=outstanding.remove
    )


def make_publishes(
    config: AppConfig, database: Database, clock: DatabaseClock, tasks: Tasks, wake_ups: WakeUps
) -> PublishCoalescer:
    """Leaves connections to claims and acks."""
    at_once = max(config.pool_size - 2, 1)
    return PublishCoalescer(database, clock, wake_ups, tasks, shards_at_once=at_once)
