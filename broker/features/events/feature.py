"""Registers events: the settings that name their topic, and the worker that detects and publishes them."""

from broker.core.context.core import Core
from broker.core.process.periodic import PeriodicWorker
from broker.core.publishing.preparation import Preparation
from broker.core.publishing.publish_coalescer import PublishCoalescer
from broker.core.publishing.publish_rights import CheckPublisher
from broker.features.events.rpcs import make_rpcs
from broker.features.events.service import EventService
from broker.features.events.worker import EVENT_SECONDS, LAG_SECONDS, EventWatch
from broker.features.feature import Feature


def register(
    core: Core, *, preparation: Preparation, publishes: PublishCoalescer, check_publisher: CheckPublisher
) -> Feature:
    watch = EventWatch(core, preparation, publishes, check_publisher)
    return Feature(
        rpcs=make_rpcs(EventService(core.database, core.clock)),
        workers={
            "events": PeriodicWorker(watch.run_once, EVENT_SECONDS),
            "lag alerts": PeriodicWorker(watch.check_lags, LAG_SECONDS),
        },
    )
