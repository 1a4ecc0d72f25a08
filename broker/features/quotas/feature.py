"""Registers quotas: their calls, and the worker that measures retained bytes."""

from broker.core.context.core import Core
from broker.core.process.periodic import PeriodicWorker
from broker.features.feature import Feature
from broker.features.quotas.quota import ProjectQuotas
from broker.features.quotas.quotas import BALANCE_SECONDS, Quotas
from broker.features.quotas.retained_bytes import TICK_SECONDS, RetainedBytes
from broker.features.quotas.rpcs import make_rpcs
from broker.features.quotas.service import QuotaService


def make_admission(core: Core, *, defaults: ProjectQuotas) -> Quotas:
    """Divides quotas among the processes, which tell each other how many connections they have."""
    quotas = Quotas(core.database, core.clock, defaults=defaults, processes=core.processes.count)
    core.processes.shared_counts = quotas.connections
    return quotas


def register(core: Core) -> Feature:
    """Registers the quotas that `make_admission` has made for this core.  Raises TypeError if it has not."""
    quotas = core.admission
    if not isinstance(quotas, Quotas):
        raise TypeError("quotas are registered with a core that has other limits")
    retained_bytes = RetainedBytes(core.database, core.clock, quotas)
    return Feature(
        rpcs=make_rpcs(QuotaService(core, quotas, retained_bytes)),
        workers={
            "quotas": PeriodicWorker(quotas.balance, BALANCE_SECONDS),
            "retained bytes": PeriodicWorker(retained_bytes.run_once, TICK_SECONDS),
        },
        begin=quotas.load,
        resource_changed=quotas.changed,
    )
