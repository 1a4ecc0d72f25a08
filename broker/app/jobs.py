"""The background jobs of the core: work that no call asks for, done one bounded pass after another."""

from collections.abc import Sequence

from broker.app.config import AppConfig
from broker.app.messages import Messages
from broker.core.context.core import Core
from broker.core.expiration.expiration import RECORD_INTERVAL, WATCH_INTERVAL
from broker.core.expiration.subscription_expirer import SubscriptionExpirer
from broker.core.process.periodic import PeriodicWorker
from broker.core.process.supervisor import Loop, Worker
from broker.core.pulling.readers import PASS_SECONDS as READERS_SECONDS
from broker.core.retention.retention_janitor import CleanUp, RetentionJanitor
from broker.core.retention.table_sizes import PASS_SECONDS as TABLE_SIZE_SECONDS
from broker.core.retention.table_sizes import TableSizes
from broker.db.driver.replica_reads import PASS_SECONDS, ReplicaReads

HEADS_INTERVAL_SECONDS = 1.0  # how late a pull or push is if its notification was lost


class Jobs:
    """The jobs of a process.  Each can be run once from outside, as tests that set the time do."""

    def __init__(
        self,
        config: AppConfig,
        core: Core,
        *,
        messages: Messages,
        replica_reads: ReplicaReads,
        clean_ups: Sequence[CleanUp],
    ) -> None:
        """`clean_ups`: those of features."""
        claiming = messages.claiming
        self._config, self._claiming, self._acking, self._replica_reads = (
            config,
            claiming,
            messages.acking,
            replica_reads,
        )
        self.janitor = RetentionJanitor(
            core,
            clean_ups,
            audit_days=config.audit_days,
            audit_entries=config.audit_entries,
            delivery_record_hours=config.delivery_record_hours,
        )
        self.expirer = SubscriptionExpirer(core, claiming.activity)
        self.table_sizes = TableSizes(core, max_bytes=config.database_size_max)

    def workers(self) -> dict[str, Worker]:
        """The jobs, by the names that the log uses."""
        config, claiming = self._config, self._claiming
        workers: dict[str, Worker] = {
            "heads": PeriodicWorker(claiming.heads.run_once, HEADS_INTERVAL_SECONDS),
            "activity": PeriodicWorker(claiming.activity.record, RECORD_INTERVAL.total_seconds()),
            "readers": PeriodicWorker(claiming.readers.run_once, READERS_SECONDS),
            "records of deliveries": Loop(self._acking.records.run),
            "janitor": PeriodicWorker(self.janitor.run_once, config.janitor_interval_seconds),
            "subscription expirer": PeriodicWorker(self.expirer.run_once, WATCH_INTERVAL.total_seconds()),
            "table sizes": PeriodicWorker(self.table_sizes.run_once, TABLE_SIZE_SECONDS),
        }
        if self._replica_reads.has_replica:
            workers["replica"] = PeriodicWorker(self._replica_reads.run_once, PASS_SECONDS)
        return workers
