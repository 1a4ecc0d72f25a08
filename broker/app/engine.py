"""How many may do what at the same time: the parts that claim, acknowledge, publish and push, for one process."""

from collections.abc import Callable, Iterable
from typing import Any

from broker.app.config import AppConfig
from broker.front.answer_memory import AnswerMemory
from broker.runtime.ack_coalescer import AckCoalescer
from broker.runtime.ack_writer import AckWriter
from broker.runtime.claim_scheduler import ClaimScheduler
from broker.runtime.company import Company
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.delivery_counts import DeliveryCounts
from broker.runtime.delivery_records import DeliveryRecords
from broker.runtime.delivery_transforms import DeliveryTransforms
from broker.runtime.jitter import Jitter
from broker.runtime.long_poll import LongPoll
from broker.runtime.looks import Looks
from broker.runtime.loop_turns import LoopTurns
from broker.runtime.outstanding import Outstanding
from broker.runtime.publish_coalescer import PublishCoalescer
from broker.runtime.quotas import Quotas
from broker.runtime.readers import Readers
from broker.runtime.resource_cache import ResourceCache
from broker.runtime.sandboxes import Sandboxes
from broker.runtime.storage_alarm import StorageAlarm
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.runtime.tasks import Tasks
from broker.runtime.transforms import Programs, TopicTransforms, TransformChecks, TransformTrials
from broker.runtime.wake_ups import WakeUps
from broker.store.driver.database import Database
from broker.store.driver.replica import Replica
from broker.store.log.attempt_ids import AttemptIds
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.state_changes import StateChanges
from broker.workers.push.address_policy import parse_address_policy
from broker.workers.push.http_client import PushClient

ACK_FLUSHES_AT_ONCE = 3  # and one that began alone; beside claims they are few, for they are short

REPLICA_CONNECTIONS = 8


def make_database(config: AppConfig, states: StateChanges, counters: Counters) -> Database:
    """With as many connections as it may have."""
    url, schema = config.database_url, config.database_schema
    common: dict[str, Any] = {"states": states, "counters": counters, "hot_url": config.hot_database_url}
    return Database(url, schema=schema, pool_size=config.pool_size, **common)


def make_looks(config: AppConfig, database: Database, states: StateChanges, counters: Counters) -> Looks:
    """Of the replica, if there is one: one connection for each call that looks at a time, a scrape's, a pass's."""
    url, schema = config.replica_database_url, config.database_schema
    replica = Replica(url, schema=schema, size=REPLICA_CONNECTIONS) if url else None
    most_behind = config.replica_max_lag_seconds
    return Looks(database, replica, most_behind=most_behind, states=states, counters=counters)


def make_push_client(config: AppConfig) -> PushClient:
    """Which calls no address that it may not."""
    policy = parse_address_policy(config.push_private_addresses, config.push_allowed_networks)
    return PushClient(policy=policy, ca_file=config.push_ca_file)


def make_quotas(
    config: AppConfig,
    database: Database,
    clock: DatabaseClock,
    storage: StorageAlarm,
    *,
    processes: Callable[[], int],
) -> Quotas:
    """Of projects, beside what the installation has room for."""
    return Quotas(database, clock, defaults=config.default_quotas, processes=processes, storage=storage)


def make_claims(
    config: AppConfig,
    database: Database,
    clock: DatabaseClock,
    tasks: Tasks,
    attempt_ids: AttemptIds,
    jitter: Jitter,
    loop_turns: LoopTurns,
    counters: Counters,
    company: Company,
) -> tuple[ClaimScheduler, ClaimScheduler]:
    """For pulls, and for pushes: a flood of one leaves connections to the other, to publishes and to acks."""
    parts = database, clock, attempt_ids, tasks
    common: dict[str, Any] = {
        "jitter": jitter,
        "loop_turns": loop_turns,
        "counters": counters,
        "company": company,
    }
    for_pulls = max(config.pool_size - 2, 1)
    return (
        ClaimScheduler(*parts, **common, turns_at_once=for_pulls, waits=True),
        # One claims while the rows of the other are on their way.
        ClaimScheduler(*parts, **common, turns_at_once=2, waits=False),
    )


def make_long_poll(
    config: AppConfig,
    database: Database,
    clock: DatabaseClock,
    tasks: Tasks,
    claims: ClaimScheduler,
    resources: ResourceCache,
    answers: AnswerMemory,
    counters: Counters,
) -> LongPoll:
    """Of all pulls that wait; it claims nothing while there is no room for what it would answer."""
    return LongPoll(
        *(database, clock, claims, tasks),
        max_waiting=config.max_waiting_pulls,
        has_room=answers.has_room,
        is_current=resources.is_current,
        counts=DeliveryCounts(counters),
    )


def make_records(
    config: AppConfig, database: Database, clock: DatabaseClock, states: StateChanges, counters: Counters
) -> DeliveryRecords:
    """Of what is acknowledged through this process."""
    return DeliveryRecords(database, clock, states, counters, on=config.delivery_record_hours > 0)


def make_acks(
    config: AppConfig,
    database: Database,
    clock: DatabaseClock,
    attempt_ids: AttemptIds,
    wake_ups: WakeUps,
    jitter: Jitter,
    tasks: Tasks,
    activity: SubscriptionActivity,
    outstanding: Outstanding,
    readers: Readers,
    counters: Counters,
    company: Company,
    records: DeliveryRecords,
) -> AckCoalescer:
    """Of pulls and of pushes."""
    counts = DeliveryCounts(counters)
    writer = AckWriter(database, clock, attempt_ids, wake_ups, jitter=jitter, counts=counts, records=records)
    at_once = max(1, min(ACK_FLUSHES_AT_ONCE, config.pool_size // 2))
    return AckCoalescer(
        writer,
        tasks,
        activity,
        flushes_at_once=at_once,
        counters=counters,
        company=company,
        acked=readers.acked,
        settled=outstanding.remove,
    )


def make_publishes(
    config: AppConfig,
    database: Database,
    clock: DatabaseClock,
    tasks: Tasks,
    wake_ups: WakeUps,
    loop_turns: LoopTurns,
    counters: Counters,
    company: Company,
) -> PublishCoalescer:
    """Leaves connections to claims and acks."""
    parts = database, clock, wake_ups, tasks
    at_once = max(config.pool_size - 2, 1)
    shared: dict[str, Any] = {"counters": counters, "loop_turns": loop_turns, "company": company}
    return PublishCoalescer(*parts, shards_at_once=at_once, **shared)


class Transforming:
    """What transforms messages, of one process."""

    def __init__(
        self,
        tasks: Tasks,
        clock: DatabaseClock,
        acks: AckCoalescer,
        states: StateChanges,
        counters: Counters,
        *,
        claims: Iterable[ClaimScheduler],
    ) -> None:
        """`claims`: whose messages are transformed."""
        programs = Programs()
        self.sandboxes = Sandboxes(tasks, counters)
        self.checks = TransformChecks(self.sandboxes)
        self.trials = TransformTrials(self.sandboxes, programs)
        self.of_topics = TopicTransforms(self.sandboxes, programs, clock, counters)
        self.of_deliveries = DeliveryTransforms(self.sandboxes, programs, acks, states, counters)
        for each in claims:
            each.transforms = self.of_deliveries
