"""The background jobs of a process: work that no call asks for, done one bounded pass after another."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from broker.app.config import AppConfig
from broker.app.guard import Guard
from broker.app.messages import Messages
from broker.core.context.core import Core
from broker.core.expiration.expiration import RECORD_INTERVAL, WATCH_INTERVAL
from broker.core.expiration.subscription_expirer import SubscriptionExpirer
from broker.core.process.next_due import NextDue
from broker.core.process.periodic import PeriodicWorker
from broker.core.process.supervisor import Loop, Worker
from broker.core.publishing.preparation import Preparation
from broker.core.publishing.publish_rights import CheckPublisher
from broker.core.pulling.readers import PASS_SECONDS as READERS_SECONDS
from broker.core.retention.retention_janitor import CleanUp, RetentionJanitor
from broker.core.retention.table_sizes import PASS_SECONDS as TABLE_SIZE_SECONDS
from broker.core.retention.table_sizes import TableSizes
from broker.db.driver.replica_reads import PASS_SECONDS, Looks
from broker.features.dead_letters.forwarding.dead_letter_forwarder import DeadLetterForwarder
from broker.features.dead_letters.recovery.operation import PushReplayKind
from broker.features.dead_letters.redriving.operation import RedriveKind
from broker.features.deduplication.identities import drop_identities_behind
from broker.features.delayed.rows import delete_scheduled_ids
from broker.features.delayed.worker import DueMessages
from broker.features.events.worker import EVENT_SECONDS, LAG_SECONDS, EventWatch
from broker.features.filters.change_rows import forget_filters
from broker.features.import_export.copy_operation import CopyKind
from broker.features.import_export.import_rows import delete_old_parts
from broker.features.metrics.figures import Figures
from broker.features.metrics.scrapes import Scrapes
from broker.features.metrics.series_janitor import SERIES_SECONDS, SeriesJanitor
from broker.features.operations.operation_news import OperationNews
from broker.features.operations.rows import delete_old_operations
from broker.features.operations.runner import Kind, OperationRunner
from broker.features.operations.targets import Targets
from broker.features.outbox.ack_relay import AckRelay
from broker.features.outbox.message_relay import MessageRelay
from broker.features.outbox.relay import Relay
from broker.features.outbox.rows import delete_refused_messages
from broker.features.outbox.worker import RelayWorker
from broker.features.purge.operation import PurgeKind
from broker.features.quotas.quotas import BALANCE_SECONDS, Quotas
from broker.features.quotas.retained_bytes import TICK_SECONDS as RETAINED_SECONDS
from broker.features.quotas.retained_bytes import RetainedBytes
from broker.features.retraction.rows import delete_retractions
from broker.features.schedules.ticker import ScheduleTicker
from broker.features.schedules.worker import ScheduleWorker
from broker.features.secrets.worker import KEEPING_SECONDS, SecretKeeper
from broker.model.operation_verb import Verb

HEADS_INTERVAL_SECONDS = 1.0  # how late a pull or push is if its notification was lost


class Jobs:
    """Each can be run once from outside, as tests that set the time do."""

    def __init__(
        self,
        config: AppConfig,
        core: Core,
        *,
        quotas: Quotas,
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
        self.quotas = quotas
        self.retained_bytes = RetainedBytes(core.database, core.clock, quotas)
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
            "quotas": PeriodicWorker(self.quotas.balance, BALANCE_SECONDS),
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
