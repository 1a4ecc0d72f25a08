"""The background jobs of a process: work that no call asks for, done one bounded pass after another."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from broker.app.config import AppConfig
from broker.app.guard import Guard
from broker.app.messages import Messages
from broker.domain.expiration import RECORD_INTERVAL, WATCH_INTERVAL
from broker.domain.operation_verb import Verb
from broker.runtime.ack_relay import AckRelay
from broker.runtime.core import Core
from broker.runtime.figures import Figures
from broker.runtime.looks import PASS_SECONDS, Looks
from broker.runtime.message_relay import MessageRelay
from broker.runtime.next_due import NextDue
from broker.runtime.operation_news import OperationNews
from broker.runtime.preparation import Preparation
from broker.runtime.publish_rights import CheckPublisher
from broker.runtime.readers import PASS_SECONDS as READERS_SECONDS
from broker.runtime.relay import Relay
from broker.runtime.retained_bytes import TICK_SECONDS as RETAINED_SECONDS
from broker.runtime.retained_bytes import RetainedBytes
from broker.runtime.schedule_ticker import ScheduleTicker
from broker.runtime.scrapes import Scrapes
from broker.runtime.table_sizes import PASS_SECONDS as TABLE_SIZE_SECONDS
from broker.runtime.table_sizes import TableSizes
from broker.store.log.identities import drop_identities_behind
from broker.store.log.imports import delete_old_parts
from broker.store.log.retracted import delete_retractions
from broker.store.log.scheduled_messages import delete_scheduled_ids
from broker.store.log.staged import delete_refused_messages
from broker.store.resources.filter_changes import forget_filters
from broker.store.resources.operations import delete_old_operations
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
from broker.workers.retention_janitor import CleanUp, RetentionJanitor
from broker.workers.schedules import ScheduleWorker
from broker.workers.secret_keeper import KEEPING_SECONDS, SecretKeeper
from broker.workers.series_janitor import SERIES_SECONDS, SeriesJanitor
from broker.workers.subscription_expirer import SubscriptionExpirer
from broker.workers.supervisor import Loop, Worker

HEADS_INTERVAL_SECONDS = 1.0  # how late a pull or push is if its notification was lost


class Jobs:
    """Each can be run once from outside, as tests that set the time do."""

    def __init__(
        self,
        config: AppConfig,
        core: Core,
        *,
        guard: Guard,
        messages: Messages,
        looks: Looks,
    ) -> None:
        claiming, acking = messages.claiming, messages.acking
        self._config, self._claiming, self._acking, self._looks = config, claiming, acking, looks
        check_publisher, preparation = guard.check_publisher, messages.publishing.preparation

        # Messages that come later, and messages that come from elsewhere.
        self.next_due = NextDue()
        self.due_messages = DueMessages(core, self.next_due)
        self.next_tick = NextDue()
        self.ticker = ScheduleTicker(core, preparation, self.next_due, check_publisher)
        self.schedules = ScheduleWorker(core, self.ticker, self.next_tick)
        self.relay = Relay(core, MessageRelay(core, preparation, self.next_due), AckRelay(core, acking.coalescer))
        self.dead_letter_forwarder = DeadLetterForwarder(core, preparation, check_publisher)

        # Operations, which are long calls that return at once.
        self.operation_news = OperationNews()
        self.operations = OperationRunner(core, _make_kinds(core, preparation, check_publisher))
        self.operation_news.wake_runner = self.operations.wake

        # Jobs that delete, encrypt, measure and report.
        self.janitor = RetentionJanitor(
            core,
            clean_ups(config),
            audit_days=config.audit_days,
            audit_entries=config.audit_entries,
            delivery_record_hours=config.delivery_record_hours,
        )
        self.expirer = SubscriptionExpirer(core, claiming.activity)
        self.secret_keeper = SecretKeeper(core.database, guard.secrets, core.states)
        self.table_sizes = TableSizes(core, max_bytes=config.database_size_max)
        self.retained_bytes = RetainedBytes(core.database, core.clock, core.quotas)
        self.event_watch = EventWatch(core, preparation, messages.publishing.coalescer, check_publisher)
        figures = Figures(core.database, looks, core.clock, core.counters.book)
        self.scrapes = Scrapes(core.counters, figures, core.storage)
        self.series_janitor = SeriesJanitor(core.database, core.counters)

    def workers(self) -> dict[str, Worker]:
        """The jobs, by the names that the log uses."""
        config, claiming = self._config, self._claiming
        workers: dict[str, Worker] = {
            "heads": PeriodicWorker(claiming.heads.run_once, HEADS_INTERVAL_SECONDS),
            "activity": PeriodicWorker(claiming.activity.record, RECORD_INTERVAL.total_seconds()),
            "readers": PeriodicWorker(claiming.readers.run_once, READERS_SECONDS),
            "records of deliveries": Loop(self._acking.records.run),
            "dead-letter forwarder": PeriodicWorker(
                self.dead_letter_forwarder.run_once, config.dead_letter_interval_seconds
            ),
            "due messages": self.due_messages,
            "schedules": self.schedules,
            "relay": RelayWorker(self.relay),
            "operations": self.operations,
            "janitor": PeriodicWorker(self.janitor.run_once, config.janitor_interval_seconds),
            "subscription expirer": PeriodicWorker(self.expirer.run_once, WATCH_INTERVAL.total_seconds()),
            "secrets": PeriodicWorker(self.secret_keeper.run_once, KEEPING_SECONDS),
            "table sizes": PeriodicWorker(self.table_sizes.run_once, TABLE_SIZE_SECONDS),
            "retained bytes": PeriodicWorker(self.retained_bytes.run_once, RETAINED_SECONDS),
            "events": PeriodicWorker(self.event_watch.run_once, EVENT_SECONDS),
            "lag alerts": PeriodicWorker(self.event_watch.look_at_lags, LAG_SECONDS),
            "metrics of what is gone": PeriodicWorker(self.series_janitor.run_once, SERIES_SECONDS),
        }
        if self._looks.has_replica:
            workers["replica"] = PeriodicWorker(self._looks.run_once, PASS_SECONDS)
        return workers


def clean_ups(config: AppConfig) -> Sequence[CleanUp]:
    """Return the clean-ups of extensions, which the janitor runs."""
    return (
        delete_refused_messages,
        drop_identities_behind,
        delete_retractions,
        forget_filters,
        partial(delete_old_operations, days=config.operation_days),
        partial(delete_old_parts, days=config.operation_days),
        partial(delete_scheduled_ids, kept=timedelta(hours=config.delivery_record_hours)),
    )


def _make_kinds(core: Core, preparation: Preparation, check_publisher: CheckPublisher) -> dict[Verb, Kind]:
    targets = Targets(core, preparation, check_publisher)
    redrives = RedriveKind(core, targets)
    push_replays = PushReplayKind(core, redrives)
    return {
        Verb.REDRIVE: redrives,
        Verb.COPY: CopyKind(core, targets),
        Verb.PURGE: PurgeKind(core),
        Verb.RECOVER: push_replays,
        Verb.REPLAY_MISSING: push_replays,
    }
