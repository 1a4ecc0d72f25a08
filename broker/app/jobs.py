"""What one process does by itself, one pass after another, and that no call asks for."""

from typing import Any

from broker.app.config import AppConfig
from broker.domain.expiration import WATCH_INTERVAL
from broker.domain.operation import Verb
from broker.runtime.ack_coalescer import AckCoalescer
from broker.runtime.ack_relay import AckRelay
from broker.runtime.company import Company
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.figures import Figures
from broker.runtime.looks import PASS_SECONDS, Looks
from broker.runtime.loop_turns import LoopTurns
from broker.runtime.message_relay import MessageRelay
from broker.runtime.next_due import NextDue
from broker.runtime.publish_coalescer import PublishCoalescer
from broker.runtime.publish_rights import CheckPublisher
from broker.runtime.quotas import Quotas
from broker.runtime.relay import Relay
from broker.runtime.resource_cache import ResourceCache
from broker.runtime.schedule_ticker import ScheduleTicker
from broker.runtime.schema_checks import SchemaChecks
from broker.runtime.scrapes import Scrapes
from broker.runtime.subscription_activity import SubscriptionActivity
from broker.runtime.table_sizes import PASS_SECONDS as TABLE_SIZE_SECONDS
from broker.runtime.table_sizes import TableSizes
from broker.runtime.transforms import TopicTransforms
from broker.runtime.wake_ups import WakeUps
from broker.secrets.secrets import Secrets
from broker.store.driver.database import Database
from broker.store.log.attempt_ids import AttemptIds
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.state_changes import StateChanges
from broker.workers.dead_letter_forwarder import DeadLetterForwarder
from broker.workers.due_messages import DueMessages
from broker.workers.event_watch import EVENT_SECONDS, LAG_SECONDS, EventWatch
from broker.workers.operations.copying import CopyKind
from broker.workers.operations.purging import PurgeKind
from broker.workers.operations.push_replay import PushReplayKind
from broker.workers.operations.redrive import RedriveKind
from broker.workers.operations.runner import Kind, OperationRunner
from broker.workers.operations.targets import Targets
from broker.workers.periodic import PeriodicWorker
from broker.workers.relays import RelayWorker
from broker.workers.retention_janitor import RetentionJanitor
from broker.workers.schedules import ScheduleWorker
from broker.workers.secret_keeper import KEEPING_SECONDS, SecretKeeper
from broker.workers.series_janitor import SERIES_SECONDS, SeriesJanitor
from broker.workers.subscription_expirer import SubscriptionExpirer
from broker.workers.supervisor import Worker


class Passes:
    """Each can be run once from outside, as tests that set the time do."""

    def __init__(
        self,
        config: AppConfig,
        database: Database,
        clock: DatabaseClock,
        resources: ResourceCache,
        wake_ups: WakeUps,
        publishes: PublishCoalescer,
        activity: SubscriptionActivity,
        secrets: Secrets,
        states: StateChanges,
        counters: Counters,
        attempt_ids: AttemptIds,
        quotas: Quotas,
        schemas: SchemaChecks,
        transforms: TopicTransforms,
        company: Company,
        loop_turns: LoopTurns,
        acks: AckCoalescer,
        looks: Looks,
        check_publisher: CheckPublisher,
    ) -> None:
        parts, shared = (database, clock), (database, clock, resources, wake_ups)
        self._config, self._looks, storage = config, looks, quotas.storage
        self.table_sizes = TableSizes(*parts, storage, states, max_bytes=config.database_size_max)
        self.secret_keeper = SecretKeeper(database, secrets, states)
        self.scrapes = Scrapes(counters, Figures(database, looks, clock, counters.book), storage)
        self.dead_letter_forwarder = DeadLetterForwarder(
            *shared, counters, company, loop_turns, states, storage, check_publisher
        )
        self.next_due, self.next_tick, self.series_janitor = NextDue(), NextDue(), SeriesJanitor(database, counters)
        self.due_messages = DueMessages(*parts, wake_ups, self.next_due, counters, states, storage)
        self.ticker = ScheduleTicker(*shared, quotas, schemas, transforms, states, counters, check_publisher)
        self.schedules = ScheduleWorker(clock, self.ticker, self.next_tick, counters, company)
        self.relay = _make_relay(*shared, self.next_due, quotas, acks, states, counters)
        self.event_watch = EventWatch(*parts, resources, publishes, states, storage, check_publisher)
        self.janitor = RetentionJanitor(*parts, states, counters, **_retention(config))
        self.expirer = SubscriptionExpirer(*parts, activity, wake_ups)
        kinds = _kinds(clock, resources, quotas, schemas, wake_ups, attempt_ids, counters, check_publisher)
        self.operations = OperationRunner(*parts, wake_ups, kinds, states, counters)

    @property
    def told(self) -> tuple[NextDue, ScheduleTicker, NextDue]:
        """What services have part in."""
        return self.next_due, self.ticker, self.next_tick

    def workers(self) -> dict[str, Worker]:
        """By the names that the log has."""
        config = self._config
        forwarder = self.dead_letter_forwarder
        looking = {"replica": PeriodicWorker(self._looks.run_once, PASS_SECONDS)} if self._looks.has_replica else {}
        return {
            **looking,
            "dead-letter forwarder": PeriodicWorker(forwarder.run_once, config.dead_letter_interval_seconds),
            "due messages": self.due_messages,
            "schedules": self.schedules,
            "relay": RelayWorker(self.relay),
            "subscription expirer": PeriodicWorker(self.expirer.run_once, WATCH_INTERVAL.total_seconds()),
            "events": PeriodicWorker(self.event_watch.run_once, EVENT_SECONDS),
            "lag alerts": PeriodicWorker(self.event_watch.look_at_lags, LAG_SECONDS),
            "table sizes": PeriodicWorker(self.table_sizes.run_once, TABLE_SIZE_SECONDS),
            "secrets": PeriodicWorker(self.secret_keeper.run_once, KEEPING_SECONDS),
            "metrics of what is gone": PeriodicWorker(self.series_janitor.run_once, SERIES_SECONDS),
            "operations": self.operations,
            "janitor": PeriodicWorker(self.janitor.run_once, config.janitor_interval_seconds),
        }


def _retention(config: AppConfig) -> dict[str, Any]:
    """How much the janitor keeps."""
    names = ("audit_days", "audit_entries", "operation_days", "delivery_record_hours")
    return {name: getattr(config, name) for name in names}


def _kinds(
    clock: DatabaseClock,
    resources: ResourceCache,
    quotas: Quotas,
    schemas: SchemaChecks,
    wake_ups: WakeUps,
    attempt_ids: AttemptIds,
    counters: Counters,
    check_publisher: CheckPublisher,
) -> dict[Verb, Kind]:
    targets = Targets(clock, resources, quotas, schemas, check_publisher)
    redrives = RedriveKind(clock, resources, targets, wake_ups, attempt_ids, counters)
    push_replays = PushReplayKind(clock, resources, wake_ups, attempt_ids, counters, redrives)
    return {
        Verb.REDRIVE: redrives,
        Verb.COPY: CopyKind(targets, wake_ups, counters),
        Verb.PURGE: PurgeKind(clock, resources, wake_ups, attempt_ids, counters),
        Verb.RECOVER: push_replays,
        Verb.REPLAY_MISSING: push_replays,
    }


def _make_relay(
    database: Database,
    clock: DatabaseClock,
    resources: ResourceCache,
    wake_ups: WakeUps,
    next_due: NextDue,
    quotas: Quotas,
    acks: AckCoalescer,
    states: StateChanges,
    counters: Counters,
) -> Relay:
    messages = MessageRelay(database, clock, resources, wake_ups, next_due, quotas, states, counters)
    return Relay(database, clock, messages, AckRelay(database, resources, acks, states, counters), states)
