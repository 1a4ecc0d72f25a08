"""Registers the pages with metrics, and the job that removes the series of deleted resources."""

from broker.api.gate import Gate
from broker.api.pages.metrics import metrics_routes
from broker.core.context.core import Core
from broker.core.process.periodic import PeriodicWorker
from broker.db.driver.replica_reads import ReplicaReads
from broker.features.feature import Feature
from broker.features.metrics.figures import Figures
from broker.features.metrics.scrapes import Scrapes
from broker.features.metrics.series_janitor import SERIES_SECONDS, SeriesJanitor


def register(core: Core, *, replica_reads: ReplicaReads, gate: Gate | None) -> Feature:
    """Registers the feature.

    `gate` checks the callers that scrape the page beside the API; None: every caller may.
    """
    scrapes = Scrapes(
        core.counters, Figures(core.database, replica_reads, core.clock, core.counters.book), core.storage
    )
    janitor = SeriesJanitor(core.database, core.counters)
    return Feature(
        workers={"metrics of what is gone": PeriodicWorker(janitor.run_once, SERIES_SECONDS)},
        pages=metrics_routes(scrapes.scrape, scrapes.projects, gate),
        metrics_pages=metrics_routes(scrapes.scrape, scrapes.projects, None),
    )
