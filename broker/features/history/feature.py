"""Registers the recording of history, and the call that reads it."""

from broker.core.context.core import Core
from broker.core.process.supervisor import Loop
from broker.features.feature import Feature
from broker.features.history.recorder import HistoryRecorder
from broker.features.history.roll_ups import maintain_history
from broker.features.history.rpcs import make_rpcs
from broker.features.history.service import HistoryService


def register(core: Core) -> Feature:
    rpcs = make_rpcs(HistoryService(core.database, core.clock))
    if not core.counters.is_first_process:  # whose recorder reads what all processes of the broker count
        return Feature(rpcs=rpcs, clean_ups=[maintain_history])
    recorder = HistoryRecorder(core)
    return Feature(
        rpcs=rpcs,
        workers={"history": Loop(recorder.run)},
        clean_ups=[maintain_history],
        resource_changed=recorder.forget,
        close=recorder.close,
    )
